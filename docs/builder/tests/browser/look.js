// What the test asks of a page. Each function answers with plain data; what is right is decided in Rust.
({
    // The drawn charts: where each mark stands, as a part of its axis, measured from what the browser laid out.
    charts() {
        const middle = (element) => {
            const box = element.getBoundingClientRect();
            return { x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2 };
        };
        const seen = (element) => element.checkVisibility() && element.getBoundingClientRect().height > 0;
        return [...document.querySelectorAll(".chart")].map((chart) => ({
            kind: chart.dataset.chart,
            id: chart.id,
            series: chart.dataset.series ?? null,
            seen: seen(chart),
            marks: [...chart.querySelectorAll(".axis .mark")].map((mark) => ({ value: Number(mark.dataset.value), at: middle(mark).x })),
            levels: [...chart.querySelectorAll(".level")].map((level) => ({
                value: Number(level.dataset.value),
                at: level.getBoundingClientRect().bottom,
            })),
            loops: [...chart.querySelectorAll(".loop, .point")].map((loop) => {
                const box = (selector) => loop.querySelector(selector)?.getBoundingClientRect();
                const [bar, dot, notch, own] = [box(".bar"), box(".dot"), box(".notch"), loop.getBoundingClientRect()];
                return {
                    id: loop.closest("[data-id]")?.dataset.id ?? null,
                    loop: loop.dataset.loop,
                    workers: Number(loop.dataset.workers ?? 0),
                    label: loop.getAttribute("aria-label"),
                    role: loop.getAttribute("role"),
                    said: loop.querySelector(".said")?.textContent ?? "",
                    units: [...loop.querySelectorAll("[data-unit]")].map((plot) => {
                        const [field, bar] = [plot, plot.querySelector(".bar")].map((part) => part?.getBoundingClientRect());
                        return {
                            name: plot.dataset.unit,
                            plot: [field.left, field.right],
                            bar: bar ? [bar.left, bar.right] : null,
                            said: plot.nextElementSibling.textContent,
                        };
                    }),
                    hollow: loop.querySelector(".dot.hollow") !== null,
                    bar: bar ? [bar.left, bar.right] : null,
                    dot: dot ? middle(loop.querySelector(".dot")) : null,
                    notch: notch ? middle(loop.querySelector(".notch")).x : null,
                    bottom: own.bottom,
                };
            }),
        }));
    },

    // Tables that belong to the charts, as rows of texts.
    tables() {
        return [...document.querySelectorAll("details.figures:has(table)")].map((details) => {
            details.open = true;
            return [...details.querySelectorAll("tr")].map((row) => [...row.children].map((cell) => cell.textContent));
        });
    },

    // What of the page's content stands out of its window. Blocks of code and wide tables scroll within themselves.
    overflow() {
        const scrolls = "pre, .table-wrapper, .tip";
        const outside = [...document.querySelectorAll("main *")].filter((element) => {
            const box = element.getBoundingClientRect();
            return !element.parentElement.closest(scrolls) && element.checkVisibility() && (box.right > window.innerWidth + 1 || box.left < -1);
        });
        return outside.map((element) => `${element.tagName} ${element.className} ${element.textContent.slice(0, 60)}`);
    },

    // Texts and signs of the charts that stand out too little from what is behind them (WCAG 2.2, 1.4.3 and 1.4.11).
    faint() {
        const colour = (text) => {
            const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
            canvas.fillStyle = text;
            canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data];
        };
        const behind = (element) => {
            for (let at = element; at; at = at.parentElement) {
                const [r, g, b, alpha] = colour(getComputedStyle(at).backgroundColor);
                if (alpha === 255) {
                    return [r, g, b];
                }
            }
            return [255, 255, 255];
        };
        const light = ([r, g, b]) => {
            const [red, green, blue] = [r, g, b].map((part) => {
                const value = part / 255;
                return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
        };
        const contrast = (a, b) => {
            const [dark, bright] = [light(a), light(b)].sort((x, y) => x - y);
            return (bright + 0.05) / (dark + 0.05);
        };
        const found = [];
        const check = (selector, least, of) => {
            for (const element of document.querySelectorAll(selector)) {
                const is = contrast(of(element), behind(selector.endsWith("dot") ? element.parentElement.parentElement : element));
                if (is < least) {
                    found.push(`${selector} ${element.textContent || element.parentElement.className}: ${is.toFixed(2)} of ${least}`);
                }
            }
        };
        const text = (element) => colour(getComputedStyle(element).color);
        for (const selector of [".title", ".name", ".said", ".mark", ".level span", ".category", "figcaption", ".bound", ".tip"]) {
            check(`.chart ${selector}`, 4.5, text);
        }
        check("main a, main p, main td", 4.5, text);
        check(".chart .loop .dot", 3, (element) => colour(getComputedStyle(element).borderTopColor));
        return found;
    },

    // The mark that has the focus, and whether its figures are shown.
    focused() {
        const mark = document.activeElement;
        const tip = mark?.querySelector(":scope > .tip");
        return { label: mark?.getAttribute("aria-label") ?? null, told: tip ? tip.checkVisibility() : false, page: location.pathname };
    },
})

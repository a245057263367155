// What the charts do beside being there: arrow keys go from mark to mark, and Escape hides the figures of one.
// Without this script each mark is reached by Tab, and everything can be read all the same.
"use strict";

(() => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };

    for (const chart of document.querySelectorAll(".chart")) {
        const marks = [...chart.querySelectorAll("[tabindex]")];
        // One stop of Tab for each chart.
        marks.slice(1).forEach((mark) => mark.setAttribute("tabindex", "-1"));

        const go = (from, to) => {
            from.setAttribute("tabindex", "-1");
            to.setAttribute("tabindex", "0");
            to.focus();
        };

        chart.addEventListener("keydown", (event) => {
            const at = marks.indexOf(event.target);
            if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) {
                return;
            }
            const last = marks.length - 1;
            const to = { Home: 0, End: last }[event.key] ?? Math.min(last, Math.max(0, at + (step[event.key] ?? NaN)));
            if (event.key === "Escape") {
                event.target.classList.add("told");
            } else if (Number.isNaN(to)) {
                return;
            } else {
                go(event.target, marks[to]);
                event.preventDefault();
            }
            // The page's own arrows turn to the next chapter.
            event.stopPropagation();
        });

        chart.addEventListener("focusout", (event) => event.target.classList.remove("told"));
        chart.addEventListener("pointerenter", (event) => event.target.classList?.remove("told"), true);
    }
})();

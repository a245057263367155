//! Links that lead somewhere: each link of the built pages into the site, and each link of the documents into the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The documents beside the site whose links are checked too.
const DOCUMENTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

/// Checks all links between the pages of `site`, and to places in them; answers with their number.
pub(crate) fn check_site(site: &Path) -> Result<usize> {
    let mut pages = BTreeMap::new();
    read_pages(site, &mut pages)?;
    let mut dead = Vec::new();
    let mut count = 0;
    for (path, page) in &pages {
        let folder = path.parent().unwrap_or(site);
        for link in page.links.iter().filter(|link| !leads_outside(link)) {
            count += 1;
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let file = file.split_once('?').map_or(file, |(file, _)| file);
            let target = if file.is_empty() {
                path.clone()
            } else {
                normal(&folder.join(file))
            };
            let found = match pages.get(&target) {
                Some(target) => place.is_empty() || target.places.contains(place),
                None => target.exists(),
            };
            if !found {
                dead.push(format!("{}: {link}", path.strip_prefix(site).unwrap_or(path).display()));
            }
        }
    }
    if dead.is_empty() {
        return Ok(count);
    }
    bail!(
        "{} links of the site lead nowhere:\n  {}",
        dead.len(),
        dead.join("\n  ")
    )
}

/// Checks the links of the documents at the root into the repository; answers with their number.
pub(crate) fn check_documents(root: &Path) -> Result<usize> {
    let mut count = 0;
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(root.join(document)).with_context(|| document.to_owned())?;
        for link in markdown_links(&text).into_iter().filter(|link| !leads_outside(link)) {
            count += 1;
            let (file, _) = link.split_once('#').unwrap_or((link, ""));
            if !root.join(file).exists() {
                bail!("{document}: the link `{link}` leads nowhere");
            }
        }
    }
    Ok(count)
}

/// A page: where its links lead, and the places that a link can lead to.
#[derive(Default)]
struct Page {
    links: Vec<String>,
    places: BTreeSet<String>,
}

fn read_pages(folder: &Path, pages: &mut BTreeMap<PathBuf, Page>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            read_pages(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let html = std::fs::read_to_string(&path)?;
            pages.insert(path, page(&html));
        }
    }
    Ok(())
}

/// Reads the attributes of all tags, as mdBook writes them: with double quotes around the values.
fn page(html: &str) -> Page {
    let mut page = Page::default();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        rest = &rest[start..];
        let end = tag_end(rest);
        let (tag, after) = rest.split_at(end);
        for (name, value) in attributes(tag) {
            match name {
                "href" | "src" => page.links.push(value.replace("&amp;", "&")),
                "id" => {
                    page.places.insert(value.to_owned());
                }
                _ => {}
            }
        }
        rest = after;
        if tag.starts_with("<script") {
            rest = after.find("</script").map_or("", |end| &after[end..]);
        }
    }
    page
}

/// Where a tag ends that `html` starts with: at a `>` outside of quotes.
fn tag_end(html: &str) -> usize {
    let mut quoted = false;
    for (at, c) in html.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '>' if !quoted => return at + 1,
            _ => {}
        }
    }
    html.len()
}

fn attributes(tag: &str) -> impl Iterator<Item = (&str, &str)> {
    tag.split("=\"").zip(tag.split("=\"").skip(1)).map(|(before, after)| {
        let name = before.rsplit([' ', '\n', '\t']).next().unwrap_or_default();
        (name, after.split('"').next().unwrap_or_default())
    })
}

/// The targets of `[text](target)` outside of blocks of code.
fn markdown_links(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    prose
        .flat_map(|prose| prose.split("](").skip(1))
        .filter_map(|after| after.split_once(')').map(|(target, _)| target))
        .collect()
}

fn leads_outside(link: &str) -> bool {
    ["https://", "http://", "mailto:", "data:", "javascript:"]
        .iter()
        .any(|scheme| link.starts_with(scheme))
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            component => normal.push(component),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_into_nothing_is_named_with_its_page() {
        let site = tempfile::tempdir().unwrap();
        let write = |name: &str, html: &str| std::fs::write(site.path().join(name), html).unwrap();
        write(
            "a.html",
            r##"<a href="b.html#here">x</a> <a href="#top" id="top">y</a> <img src="https://far.example/c.png">"##,
        );
        write(
            "b.html",
            r#"<h2 id="here" class="a>b">b</h2><script>let html = '<a href="no.html">';</script>"#,
        );
        assert_eq!(check_site(site.path()).unwrap(), 2);
        write("b.html", r#"<h2 id="there">b</h2><a href="../c.css?v=1">"#);
        let error = check_site(site.path()).unwrap_err().to_string();
        assert!(
            error.contains("2 links") && error.contains("a.html: b.html#here"),
            "{error}"
        );
        assert!(error.contains("b.html: ../c.css?v=1"), "{error}");
    }

    #[test]
    fn links_of_markdown_are_those_outside_of_code() {
        let text = "[a](x.md) and [b](y.md#z)\n```rust\nlet a = v[0](1);\n```\n[c](w)";
        assert_eq!(markdown_links(text), ["x.md", "y.md#z", "w"]);
    }
}

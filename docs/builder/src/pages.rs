//! The pages with code that is written on them: each block is run as a doc test.

/// A module for each page, whose documentation it is.
macro_rules! pages {
    ($($name:ident $page:literal,)*) => {
        /// The pages, as `SUMMARY.md` calls them.
        #[cfg(test)]
        pub(crate) const PAGES: &[&str] = &[$($page),*];

        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("../../src/", $page))]
            mod $name {}
        )*
    };
}

pages! {
    getting_started "getting-started.md",
    delivery "concepts/delivery.md",
    ordering "concepts/ordering.md",
    retries "concepts/retries.md",
    shutdown "concepts/shutdown.md",
    testing "concepts/testing.md",
    publishing "guide/publishing.md",
    routers "guide/routers.md",
    layers "guide/layers.md",
    outbox "guide/outbox.md",
    codecs "guide/codecs.md",
    sql "transports/sql.md",
    redis "transports/redis.md",
    rabbitmq "transports/rabbitmq.md",
    mqtt "transports/mqtt.md",
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::PAGES;

    #[test]
    fn every_page_with_code_is_run_as_a_doc_test() {
        let mut missing = Vec::new();
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../src")];
        let root = folders[0].clone();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
                let has_code = std::fs::read_to_string(&path).unwrap().contains("```rust");
                if has_code != PAGES.contains(&name.as_str()) {
                    missing.push(name);
                }
            }
        }
        assert!(
            missing.is_empty(),
            "the list of pages with code is wrong of {missing:?}"
        );
    }
}

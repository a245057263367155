//! What an app is called.

/// What an app is called, for people and for the documents made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppInfo {
    name: String,
    version: String,
    description: String,
}

impl AppInfo {
    /// An app of this name and version; `env!("CARGO_PKG_VERSION")` is the usual version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            description: String::new(),
        }
    }

    /// Sets what the app does, in a sentence.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What the app does; empty if nothing was said.
    pub fn about(&self) -> &str {
        &self.description
    }
}

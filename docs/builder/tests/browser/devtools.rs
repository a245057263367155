//! A headless Chromium, driven through two pipes by its protocol of developer tools (<https://chromedevtools.github.io/devtools-protocol/>): one
//! JSON text for each call, answer and event, each followed by a zero byte.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long the browser may take for one thing that is asked of it.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Browser {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    calls: u64,
    events: Vec<Value>,
    /// Ends with its value.
    _process: Child,
    _profile: TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let program = servers::chromium().unwrap_or_else(|error| panic!("{error}"));
        let profile = tempfile::tempdir().unwrap();
        // Through the shell, since the protocol goes through the descriptors 3 and 4.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh"])
            .arg(&program)
            .args([
                "--remote-debugging-pipe",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
            ])
            .args([
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()),
            calls: 0,
            events: Vec::new(),
            _process: process,
            _profile: profile,
        }
    }

    /// A window of its own.
    pub(crate) async fn window(&mut self, view: View) -> Window<'_> {
        let target = self
            .call(None, "Target.createTarget", json!({"url": "about:blank"}))
            .await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call(None, "Target.attachToTarget", attach).await;
        let session = session["sessionId"].as_str().unwrap().to_owned();
        let mut window = Window { browser: self, session };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            window.call(&format!("{domain}.enable"), json!({})).await;
        }
        let size =
            json!({"width": view.width, "height": view.height, "deviceScaleFactor": 1, "mobile": view.width < 600});
        window.call("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = if view.dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        window.call("Emulation.setEmulatedMedia", media).await;
        window
    }

    async fn call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let mut call = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            call["sessionId"] = session.into();
        }
        let mut text = serde_json::to_vec(&call).unwrap();
        text.push(0);
        self.input.write_all(&text).await.expect("Chromium has ended");
        loop {
            let said = self.read(method).await;
            if said["id"] == id {
                assert!(said.get("error").is_none(), "{method}: {}", said["error"]);
                return said["result"].clone();
            }
            self.events.push(said);
        }
    }

    async fn read(&mut self, awaited: &str) -> Value {
        let mut text = Vec::new();
        let read = tokio::time::timeout(PATIENCE, self.output.read_until(0, &mut text)).await;
        read.unwrap_or_else(|_| panic!("no `{awaited}` within {PATIENCE:?}"))
            .unwrap();
        assert_eq!(text.pop(), Some(0), "Chromium ended before `{awaited}`");
        serde_json::from_slice(&text).unwrap()
    }
}

/// How a page is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) dark: bool,
}

impl View {
    pub(crate) const DESKTOP: Self = Self {
        width: 1280,
        height: 900,
        dark: false,
    };
    pub(crate) const PHONE_AT_NIGHT: Self = Self {
        width: 375,
        height: 700,
        dark: true,
    };
}

pub(crate) struct Window<'a> {
    browser: &'a mut Browser,
    session: String,
}

impl Window<'_> {
    pub(crate) async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.browser.call(Some(&self.session), method, parameters).await
    }

    /// Opens a page and waits until it is loaded. Answers with what went wrong meanwhile: errors, warnings, and what it asked of the
    /// network.
    pub(crate) async fn open(&mut self, page: &Path) -> Vec<String> {
        self.browser.events.clear();
        let url = format!("file://{}", page.display());
        self.call("Page.navigate", json!({"url": url})).await;
        while !self
            .browser
            .events
            .iter()
            .any(|event| event["method"] == "Page.loadEventFired")
        {
            let event = self.browser.read("Page.loadEventFired").await;
            self.browser.events.push(event);
        }
        // What the page's scripts began is through when the browser has drawn twice.
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
            .await;
        self.browser.events.iter().filter_map(complaint).collect()
    }

    /// The value of an expression in the page; of a promise, its result.
    pub(crate) async fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", parameters).await;
        assert!(
            result.get("exceptionDetails").is_none(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].clone()
    }

    /// Presses a key.
    pub(crate) async fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let code = if key == "Tab" { 9 } else { 0 };
            let event = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Moves the mouse.
    pub(crate) async fn point(&mut self, x: f64, y: f64) {
        let event = json!({"type": "mouseMoved", "x": x, "y": y});
        self.call("Input.dispatchMouseEvent", event).await;
    }
}

/// What an event complains of.
fn complaint(event: &Value) -> Option<String> {
    let parameters = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(format!("exception: {}", parameters["exceptionDetails"])),
        "Runtime.consoleAPICalled" if parameters["type"] == "error" || parameters["type"] == "warning" => {
            Some(format!("console: {}", parameters["args"]))
        }
        "Log.entryAdded" if parameters["entry"]["level"] == "error" => Some(format!("log: {}", parameters["entry"])),
        "Network.requestWillBeSent" => {
            let url = parameters["request"]["url"].as_str()?;
            let local = ["file:", "data:", "about:"]
                .iter()
                .any(|scheme| url.starts_with(scheme));
            (!local).then(|| format!("asked of the network: {url}"))
        }
        _ => None,
    }
}

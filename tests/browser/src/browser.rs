//! Chromium without a screen, by WebDriver: <https://www.w3.org/TR/webdriver2/> and chromedriver's own commands for the
//! DevTools protocol and the console's log.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};

/// The name of an element's field in answers.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser of its own, with a fresh profile; gone when dropped.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    session: String,
    agent: ureq::Agent,
}

impl Browser {
    /// Starts chromedriver and, by it, Chromium.
    ///
    /// # Panics
    /// When either is not installed or does not start.
    #[must_use]
    pub fn start() -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver does not start: tools/setup browser installs it");
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.by_ref().find_map(|line| {
            let line = line.unwrap();
            let number = line.strip_prefix("ChromeDriver was started successfully on port ")?;
            number.trim_end_matches('.').parse::<u16>().ok()
        });
        let port = port.expect("chromedriver ended before it said its port");
        // Its later words are read and thrown away: a full pipe would stop it.
        std::thread::spawn(move || lines.for_each(drop));

        let config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(Duration::from_secs(90)));
        let base = format!("http://127.0.0.1:{port}/session");
        let mut browser = Self { driver, session: base, agent: config.build().into() };
        // Root may not use Chromium's sandbox, and /dev/shm is small in containers.
        let options =
            json!({ "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"] });
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } } } });
        let made = browser.post("", &wanted);
        browser.session += &format!("/{}", made["sessionId"].as_str().unwrap());
        browser
    }

    fn post(&self, command: &str, body: &Value) -> Value {
        let url = format!("{}{command}", self.session);
        let request = self.agent.post(&url).header("content-type", "application/json");
        let mut answer = request.send(body.to_string()).unwrap_or_else(|error| panic!("{command}: {error}"));
        let text = answer.body_mut().with_config().limit(1 << 30).read_to_string().unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(answer.status().is_success(), "{command} {body}: {}", value["value"]["message"]);
        value["value"].clone()
    }

    /// A command of the DevTools protocol.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Opens an address and waits for its `load` event.
    pub fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// Runs the body of a function in the page and hands back what it returns.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The text that an expression gives.
    pub fn text(&self, expression: &str) -> String {
        match self.run(&format!("return {expression}")) {
            Value::String(text) => text,
            other => panic!("{expression} is {other}"),
        }
    }

    /// The number that an expression gives.
    pub fn number(&self, expression: &str) -> f64 {
        self.run(&format!("return {expression}")).as_f64().unwrap_or_else(|| panic!("{expression} is no number"))
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// After 60 seconds.
    pub fn wait(&self, expression: &str) {
        let begin = Instant::now();
        loop {
            let last = self.run(&format!("return {expression}"));
            if last == Value::Bool(true) {
                return;
            }
            if begin.elapsed() > Duration::from_secs(60) {
                self.screenshot("failed");
                panic!("{expression} is {last} after 60 s; target/screenshots/failed.png shows the page");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post("/element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// Clicks in the middle of an element; what covers it makes this fail.
    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/click"), &json!({}));
    }

    /// Types into an element. WebDriver's private characters are keys: `\u{e00c}` is Escape, `\u{e015}` Arrow Down.
    pub fn keys(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// Clicks at a place of an element, in CSS pixels from its upper left corner; scrolls there first.
    pub fn click_at(&self, selector: &str, x: f64, y: f64) {
        self.run(&format!("document.querySelector({}).scrollIntoView({{block: 'center'}})", json!(selector)));
        let place = self.run(&format!(
            "const b = document.querySelector({}).getBoundingClientRect(); return [b.left, b.top]",
            json!(selector)
        ));
        let at = |n: usize, d: f64| (place[n].as_f64().unwrap() + d).round();
        self.post(
            "/actions",
            &json!({ "actions": [{ "type": "pointer", "id": "mouse", "actions": [
            { "type": "pointerMove", "duration": 0, "x": at(0, x), "y": at(1, y) },
            { "type": "pointerDown", "button": 0 }, { "type": "pointerUp", "button": 0 } ] }] }),
        );
    }

    /// Moves the pointer to the page's upper left corner.
    pub fn point_away(&self) {
        let away = json!([{ "type": "pointerMove", "duration": 0, "x": 1, "y": 1 }]);
        self.post("/actions", &json!({ "actions": [{ "type": "pointer", "id": "mouse", "actions": away }] }));
    }

    /// Makes the view so wide and high, in CSS pixels; a window cannot be as narrow as a telephone.
    pub fn size(&self, (width, height): (u32, u32)) {
        let is_small = width < 600;
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            &json!({ "width": width, "height": height, "deviceScaleFactor": if is_small { 2 } else { 1 }, "mobile": is_small }),
        );
    }

    /// What the system is said to prefer: `prefers-color-scheme`, and whether the page is shown as it would be printed.
    pub fn media(&self, is_dark: bool, is_print: bool) {
        let scheme = json!([{ "name": "prefers-color-scheme", "value": if is_dark { "dark" } else { "light" } }]);
        let media = if is_print { "print" } else { "" };
        self.devtools("Emulation.setEmulatedMedia", &json!({ "media": media, "features": scheme }));
    }

    fn keep(&self, name: &str, base64: &Value) -> PathBuf {
        let bytes = base64::engine::general_purpose::STANDARD.decode(base64.as_str().unwrap()).unwrap();
        let path = crate::pictures().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes the view to `target/screenshots/NAME.png`.
    pub fn screenshot(&self, name: &str) -> PathBuf {
        let shot = self.devtools("Page.captureScreenshot", &json!({ "format": "png" }));
        self.keep(&format!("{name}.png"), &shot["data"])
    }

    /// Writes the view to a file as WebP, which is a third of a PNG's size for a page.
    pub fn picture(&self, path: &Path) {
        let shot = self.devtools("Page.captureScreenshot", &json!({ "format": "webp", "quality": 75 }));
        let bytes = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Writes the whole page to `target/screenshots/NAME.png`, down to a height of 6000.
    pub fn screenshot_whole(&self, name: &str) -> PathBuf {
        let width = self.number("innerWidth");
        let height = self.number("document.documentElement.scrollHeight").min(6000.0);
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let parameters = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let shot = self.devtools("Page.captureScreenshot", &parameters);
        self.keep(&format!("{name}.png"), &shot["data"])
    }

    /// Prints to `target/screenshots/NAME.pdf` and hands back the number of A4 sheets.
    pub fn print(&self, name: &str) -> usize {
        let page = json!({ "width": 21.0, "height": 29.7 });
        let path =
            self.keep(&format!("{name}.pdf"), &self.post("/print", &json!({ "page": page, "background": true })));
        let bytes = std::fs::read(path).unwrap();
        // Chromium writes page objects outside of compressed streams.
        bytes.windows(11).filter(|w| w.starts_with(b"/Type /Page")).count()
            - bytes.windows(12).filter(|w| *w == b"/Type /Pages").count()
    }

    /// What the console said since it was last asked: errors of scripts, and requests that failed or were forbidden.
    pub fn console(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().unwrap().iter();
        entries.map(|e| format!("{}: {}", e["level"].as_str().unwrap(), e["message"].as_str().unwrap())).collect()
    }

    /// The moment of a page's first words on the screen, in milliseconds since its navigation began.
    pub fn first_paint_ms(&self) -> f64 {
        let entry = "(performance.getEntriesByName('first-contentful-paint')[0] || {startTime: -1})";
        self.wait(&format!("{entry}.startTime >= 0"));
        self.number(&format!("{entry}.startTime"))
    }

    /// What axe-core says against the page as it is now, by its rules for WCAG 2 and its best practices: rule, element and
    /// reason. Where it is not installed, the test is skipped.
    pub fn accessibility(&self) -> Vec<String> {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).unwrap();
        let path = cache.join("pciescope/axe-core/node_modules/axe-core/axe.min.js");
        let Ok(axe) = std::fs::read_to_string(&path) else {
            pciescope_support::tools::skip(&format!("no {}: tools/setup browser installs it", path.display()));
            return Vec::new();
        };
        self.run(&format!("{axe}; return null"));
        let script = "return axe.run(document, {resultTypes: ['violations']}).then(all => all.violations.flatMap(v => \
             v.nodes.map(n => v.id + ' ' + n.target.join(' ') + ': ' + (n.any[0] || n.all[0] || n.none[0] || v).message)))";
        self.run(script).as_array().unwrap().iter().map(Value::to_string).collect()
    }

    /// Whether anything hangs out of the page at its right, so that the whole page would have to be moved to read it.
    pub fn hangs_out(&self) -> Vec<String> {
        let script = "const wide = document.documentElement.clientWidth; const inBox = e => { for (let p = e.parentElement; p; p = p.parentElement) \
             if (getComputedStyle(p).overflowX !== 'visible') return true; return false; }; \
             return [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > wide + 1 && !inBox(e)) \
             .map(e => e.tagName + ' ' + e.className + ' ' + (e.id || e.textContent.slice(0, 40)))";
        self.run(script).as_array().unwrap().iter().map(Value::to_string).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium ends with its session; the driver alone would leave it behind.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

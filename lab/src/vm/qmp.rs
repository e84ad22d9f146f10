//! QEMU's monitor (QMP): one JSON object a line over a socket.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::LabError;

/// A connection to the monitor.
#[derive(Debug)]
pub(super) struct Monitor {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    /// What QEMU reported on its own, oldest first.
    events: Vec<Value>,
}

impl Monitor {
    /// Connects and leaves the greeting mode.
    pub fn connect(path: &Path, wait: Duration) -> Result<Monitor, LabError> {
        let failed = LabError::file("reach the monitor", path);
        let open = || -> std::io::Result<Monitor> {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(wait))?;
            stream.set_write_timeout(Some(wait))?;
            let reader = BufReader::new(stream.try_clone()?);
            Ok(Monitor { stream, reader, events: Vec::new() })
        };
        let mut monitor = open().map_err(failed)?;
        monitor.run("qmp_capabilities", Value::Null)?;
        Ok(monitor)
    }

    /// Runs a command and returns what it returned.
    pub fn run(&mut self, command: &str, arguments: Value) -> Result<Value, LabError> {
        let refused = |reason: String| LabError::Monitor(command.to_owned(), reason);
        let mut request = json!({ "execute": command });
        if !arguments.is_null() {
            request["arguments"] = arguments;
        }
        self.stream.write_all(format!("{request}\n").as_bytes()).map_err(|error| refused(error.to_string()))?;
        loop {
            let message = self.read().map_err(|error| refused(error.to_string()))?;
            if let Some(value) = message.get("return") {
                return Ok(value.clone());
            }
            if let Some(error) = message.get("error") {
                return Err(refused(error["desc"].as_str().unwrap_or("no reason").to_owned()));
            }
            self.note(message);
        }
    }

    /// The next event of this name that `wanted` accepts, among those that came and those that come before the read
    /// timeout.
    pub fn wait_event(&mut self, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value, LabError> {
        loop {
            if let Some(index) = self.events.iter().position(|event| event["event"] == name && wanted(&event["data"])) {
                return Ok(self.events.remove(index));
            }
            let message =
                self.read().map_err(|error| LabError::Monitor(format!("wait for {name}"), error.to_string()))?;
            self.note(message);
        }
    }

    fn note(&mut self, message: Value) {
        if message.get("event").is_some() {
            self.events.push(message);
        }
    }

    fn read(&mut self) -> std::io::Result<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(serde_json::from_str(&line)?),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(std::io::Error::new(ErrorKind::TimedOut, "the monitor does not answer"))
            }
            Err(error) => Err(error),
        }
    }
}

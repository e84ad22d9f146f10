//! The control socket of the virtual devices: one command a line in, one line of JSON out.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::Error;
use crate::server::Shared;

/// A line longer than this is no command.
const LINE_MAX: u64 = 4096;
/// How long a client of [`ask`] waits for its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a connection looks whether the server stops.
const LOOK: Duration = Duration::from_millis(100);

/// Sends one command and returns the answer's object.
///
/// # Errors
/// The socket cannot be reached, its answer is not of the agreed form, or [`Error::Refused`] with the device's words.
pub fn ask(socket: &Path, command: &str) -> Result<Value, Error> {
    let mut stream = UnixStream::connect(socket).map_err(Error::socket("reach", socket))?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(Error::socket("read from", socket))?;
    let line = format!("{}\n", command.replace('\n', " "));
    stream.write_all(line.as_bytes()).map_err(Error::socket("write to", socket))?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(Error::socket("read from", socket))?;
    let malformed = || Error::Answer(socket.to_path_buf(), answer.trim_end().to_owned());
    let value: Value = serde_json::from_str(&answer).map_err(|_| malformed())?;
    match (value.get("ok").and_then(Value::as_bool), value.get("error").and_then(Value::as_str)) {
        (Some(true), _) => Ok(value),
        (Some(false), Some(reason)) => Err(Error::Refused { command: command.to_owned(), reason: reason.to_owned() }),
        _ => Err(malformed()),
    }
}

/// Answers clients until the server stops.
pub(crate) fn serve(listener: &UnixListener, shared: &Arc<Shared>) {
    while !shared.is_stopping() {
        match listener.accept() {
            Ok((stream, _)) => {
                let shared = Arc::clone(shared);
                // A connection that cannot have its thread is dropped; its client sees that.
                let _ = thread::Builder::new().name("control-client".to_owned()).spawn(move || {
                    // A client that goes away in the middle of a line needs no answer.
                    let _ = answer(stream, &shared);
                });
            }
            Err(_) if shared.is_stopping() => return,
            Err(_) => thread::sleep(LOOK),
        }
    }
}

/// One client: answers each of its lines.
fn answer(mut stream: UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK))?;
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut line = Vec::new();
    while !shared.is_stopping() {
        let room = LINE_MAX - line.len() as u64;
        match lines.by_ref().take(room).read_until(b'\n', &mut line) {
            Ok(0) if line.is_empty() => return Ok(()),
            Ok(read) if read == 0 || line.ends_with(b"\n") => {
                stream.write_all(reply(&line, shared).as_bytes())?;
                line.clear();
            }
            Ok(_) if line.len() as u64 == LINE_MAX => {
                let refusal = json!({"ok": false, "error": format!("a command has at most {LINE_MAX} bytes")});
                return stream.write_all(format!("{refusal}\n").as_bytes());
            }
            Ok(_) => {}
            Err(err) if matches!(err.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

fn reply(line: &[u8], shared: &Shared) -> String {
    let answer = match std::str::from_utf8(line) {
        Ok(text) => shared.command(text.trim()).map_err(|err| err.to_string()),
        Err(_) => Err("a command is UTF-8 text".to_owned()),
    };
    let value = match answer {
        Ok(Value::Object(mut fields)) => {
            fields.insert("ok".to_owned(), Value::Bool(true));
            Value::Object(fields)
        }
        Ok(Value::Null) => json!({"ok": true}),
        Ok(other) => json!({"ok": true, "value": other}),
        Err(error) => json!({"ok": false, "error": error}),
    };
    format!("{value}\n")
}

//! The configuration file: the `web-config` of Prometheus' exporters, with two additional keys: bearer tokens and host
//! names.
//!
//! An unknown key is an error, because a misspelled key would silently weaken access control.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde::Deserialize;

use crate::access::Access;

/// The longest file that is read, in bytes.
const LONGEST: u64 = 1 << 20;
/// A hash of this cost takes half a second to check; a higher one would be a way to keep the server busy.
const COSTLIEST: u32 = 13;

/// How deep lists and mappings may lie in each other: a configuration has three levels, and the parser's time grows with
/// the square of their number.
const DEEPEST: usize = 64;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file cannot be understood.
    #[error("{}: {why}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column where known.
        why: String,
    },
    /// Certificate and key do not make a server.
    #[error("{}: {why}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Error::Read { .. } => {
                "paths in the file are relative to it; the service's user has to be able to read them"
            }
            Error::Parse { .. } => "docs/serve.md lists the keys; it is the web-config of Prometheus' exporters",
            Error::Tls { .. } => "cert_file and key_file are PEM: a chain of certificates, and the key of the first",
        })
    }
}

/// The files that a configuration was read from, the configuration file first, each with the SHA-256 of what was in it. Empty
/// where they cannot be read again: no configuration, or one out of a pipe.
#[derive(Debug, Default)]
pub struct Files(Vec<(PathBuf, [u8; 32])>);

impl Files {
    /// Whether they have what was read. Contents are compared: times and numbers of files may stay while they change.
    pub(crate) fn are_as_read(&self) -> bool {
        let is_as_read = |(path, hash): &(PathBuf, [u8; 32])| {
            is_file(path) && read(path).is_ok_and(|text| crate::access::sha256(&text) == *hash)
        };
        self.0.iter().all(is_as_read)
    }
}

/// What a configuration file says.
#[derive(Debug, Default)]
pub struct Config {
    /// TLS, where a certificate was given.
    pub tls: Option<Arc<ServerConfig>>,
    /// Clients have to show a certificate of these authorities: the SHA-256 of their file. What a connection showed when it began
    /// holds as long as they are the same.
    pub client_authorities: Option<[u8; 32]>,
    /// Who may read.
    pub access: Access,
    /// Names by which this server is called beside the loopback's.
    pub hosts: Vec<String>,
    /// What is doubtful about the files, each a sentence.
    pub warnings: Vec<String>,
    /// Where it is from.
    pub files: Files,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    tls_server_config: Option<Tls>,
    basic_auth_users: Option<BTreeMap<String, String>>,
    bearer_tokens: Option<Vec<Token>>,
    hosts: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    cert_file: PathBuf,
    key_file: PathBuf,
    client_auth_type: Option<ClientAuth>,
    client_ca_file: Option<PathBuf>,
    min_version: Option<Version>,
}

#[derive(Deserialize, PartialEq, Clone, Copy)]
enum ClientAuth {
    NoClientCert,
    RequireAndVerifyClientCert,
}

#[derive(Deserialize, PartialEq, Clone, Copy)]
enum Version {
    #[serde(rename = "TLS12")]
    V12,
    #[serde(rename = "TLS13")]
    V13,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    sha256: Option<String>,
    file: Option<PathBuf>,
}

impl Config {
    /// Reads a file and those that it names.
    ///
    /// # Errors
    /// [`Error`], with the line where one is wrong.
    pub fn load(path: &Path) -> Result<Config, Error> {
        let wrong = |why: String| Error::Parse { path: path.to_owned(), why };
        let mut config = Config::default();
        let text = config.read(path)?;
        let text = String::from_utf8(text).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
        if let Some(line) = too_deep(&text) {
            return Err(wrong(format!("line {line}: lists or mappings lie more than {DEEPEST} deep in each other")));
        }
        // An empty file is null to YAML.
        let parsed: Option<Text> = serde_yaml_ng::from_str(&text).map_err(|error| wrong(located(&text, &error)))?;
        let parsed = parsed.unwrap_or_default();
        let folder = path.parent().unwrap_or(Path::new("."));
        if let Some(tls) = &parsed.tls_server_config {
            config.tls = Some(Arc::new(config.server(folder, tls)?));
        }
        let users = parsed.basic_auth_users.unwrap_or_default();
        for (user, hash) in &users {
            let parts: bcrypt::HashParts = hash
                .parse()
                .map_err(|_| wrong(format!("basic_auth_users: the hash of {user:?} is not one of bcrypt")))?;
            if parts.get_cost() > COSTLIEST {
                return Err(wrong(format!(
                    "basic_auth_users: the hash of {user:?} costs more than 2^{COSTLIEST} rounds"
                )));
            }
            if user.contains(':') {
                return Err(wrong(format!("basic_auth_users: {user:?}: a user's name has no colon")));
            }
        }
        let mut tokens = Vec::new();
        for (number, token) in parsed.bearer_tokens.unwrap_or_default().iter().enumerate() {
            let at = |why: &str| wrong(format!("bearer_tokens, entry {}: {why}", number + 1));
            tokens.push(match (&token.sha256, &token.file) {
                (Some(hash), None) => digest(hash).ok_or_else(|| at("sha256 is not 64 hexadecimal digits"))?,
                (None, Some(file)) => {
                    let file = folder.join(file);
                    config.check_secret(&file);
                    let text = config.read(&file)?;
                    let text = text.trim_ascii();
                    if text.len() < 16 {
                        return Err(at("the token in its file is shorter than 16 bytes"));
                    }
                    crate::access::sha256(text)
                }
                _ => return Err(at("give either sha256 or file")),
            });
        }
        if !users.is_empty() {
            config.check_secret(path);
        }
        config.access = Access::new(users, tokens);
        config.hosts = parsed.hosts.unwrap_or_default().into_iter().map(|host| host.to_ascii_lowercase()).collect();
        let is_name = |host: &String| !host.is_empty() && !host.contains([':', '/', ' ']);
        if let Some(host) = config.hosts.iter().find(|host| !is_name(host)) {
            return Err(wrong(format!(
                "hosts: {host:?} is no name: leave out scheme and port; addresses need not be named"
            )));
        }
        if !config.files.0.iter().all(|(path, _)| is_file(path)) {
            config.files = Files::default();
        }
        Ok(config)
    }

    /// Whether a client has to show who it is.
    pub fn is_locked(&self) -> bool {
        !self.access.is_open() || self.client_authorities.is_some()
    }

    /// Reads the same files again. They may change keys, but not weaken access control: a file may be empty for a
    /// moment while it is written.
    ///
    /// # Errors
    /// As [`Config::load`]; what would take away TLS or the question who a client is, or bring TLS.
    pub(crate) fn load_again(&self) -> Result<Config, Error> {
        let Some((path, _)) = self.files.0.first() else { return Ok(Config::default()) };
        if let Some((pipe, _)) = self.files.0.iter().find(|(path, _)| path.exists() && !is_file(path)) {
            // Opening a pipe would wait for its writer.
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file any more");
            return Err(Error::Read { path: pipe.clone(), source });
        }
        let mut new = Config::load(path)?;
        new.access.remember(&self.access);
        let is_unasked = self.client_authorities.is_some() && new.client_authorities.is_none();
        let lacking = match () {
            () if self.is_locked() && !new.is_locked() => "it asks for no password, token or certificate any more",
            () if is_unasked => "it asks for no certificate any more",
            () if self.tls.is_some() && new.tls.is_none() => "tls_server_config is gone",
            () if self.tls.is_none() && new.tls.is_some() => "tls_server_config is new",
            () => return Ok(new),
        };
        Err(Error::Parse { path: path.clone(), why: format!("{lacking}: that needs a restart") })
    }

    /// Reads a file, and keeps in mind what was in it.
    fn read(&mut self, path: &Path) -> Result<Vec<u8>, Error> {
        let text = read(path)?;
        self.files.0.push((path.to_owned(), crate::access::sha256(&text)));
        Ok(text)
    }

    /// What TLS is to be.
    fn server(&mut self, folder: &Path, tls: &Tls) -> Result<ServerConfig, Error> {
        let (cert, key) = (folder.join(&tls.cert_file), folder.join(&tls.key_file));
        self.check_secret(&key);
        let wrong = |path: &Path, why: String| Error::Tls { path: path.to_owned(), why };
        let chain = self.certificates(&cert)?;
        let key_text = self.read(&key)?;
        let private = PrivateKeyDer::from_pem_slice(&key_text)
            .map_err(|error| wrong(&key, format!("no private key: {error}")))?;
        let versions: &[_] = match tls.min_version {
            Some(Version::V13) => &[&rustls::version::TLS13],
            Some(Version::V12) | None => &[&rustls::version::TLS13, &rustls::version::TLS12],
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| wrong(&cert, error.to_string()))?;
        let builder = match (tls.client_auth_type, &tls.client_ca_file) {
            (Some(ClientAuth::RequireAndVerifyClientCert), Some(file)) => {
                let file = folder.join(file);
                let mut roots = RootCertStore::empty();
                let certificates = self.certificates(&file)?;
                self.client_authorities = self.files.0.last().map(|(_, hash)| *hash);
                for certificate in certificates {
                    roots.add(certificate).map_err(|error| wrong(&file, error.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| wrong(&file, error.to_string()))?)
            }
            (Some(ClientAuth::NoClientCert) | None, None) => builder.with_no_client_auth(),
            // One without the other would look like access control without being one.
            _ => {
                let why = "client_auth_type: RequireAndVerifyClientCert and client_ca_file belong together";
                return Err(wrong(&cert, why.to_owned()));
            }
        };
        let mut server = builder.with_single_cert(chain, private).map_err(|error| wrong(&cert, error.to_string()))?;
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(server)
    }

    /// The certificates in a file, one at least.
    fn certificates(&mut self, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
        let wrong = |why: String| Error::Tls { path: path.to_owned(), why };
        let text = self.read(path)?;
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let all = all.map_err(|error| wrong(error.to_string()))?;
        if all.is_empty() { Err(wrong("there is no certificate".to_owned())) } else { Ok(all) }
    }

    /// Notes a file with a secret that every user can read.
    fn check_secret(&mut self, path: &Path) {
        let mode = std::fs::metadata(path).map(|metadata| metadata.permissions().mode()).unwrap_or(0);
        if mode & 0o004 != 0 {
            self.warnings.push(format!("{} can be read by every user: chmod o-r", path.display()));
        }
    }
}

fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let fail = |source| Error::Read { path: path.to_owned(), source };
    let mut text = Vec::new();
    let file = File::open(path).map_err(fail)?;
    BufReader::new(file).take(LONGEST + 1).read_to_end(&mut text).map_err(fail)?;
    if text.len() as u64 > LONGEST {
        return Err(fail(io::Error::new(io::ErrorKind::InvalidData, "it is longer than 1 MiB")));
    }
    Ok(text)
}

/// The line in which brackets, or the dashes and marks at the beginning of a line, begin more than [`DEEPEST`] levels.
/// Quotes do not count: no name holds so many open brackets.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let is_deep = |line: &str| {
        let begun = line.split_ascii_whitespace().take_while(|word| matches!(*word, "-" | "?" | ":")).count();
        line.bytes().any(|byte| {
            match byte {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth > DEEPEST
        }) || begun > DEEPEST
    };
    text.split(['\n', '\r']).position(is_deep).map(|place| place + 1)
}

/// What is wrong, and in which line. The parser's place of a key that is not known is the beginning of what the key is in.
fn located(text: &str, error: &serde_yaml_ng::Error) -> String {
    let message = error.to_string();
    let key = message.split_once("unknown field `").and_then(|(_, rest)| rest.split_once('`')).map(|(key, _)| key);
    // No key of a program looks like this, but a token that stands where a key should.
    let is_doubtful = |key: &&str| !key.bytes().all(|c| c.is_ascii_lowercase() || c == b'_');
    let said = without_values(&match key.filter(is_doubtful) {
        Some(key) => message.replacen(&format!("`{key}`"), "`...`", 1),
        None => message.clone(),
    });
    let has_key = |line: &str, key: &str| {
        line.split(['{', ',', '-', ' ']).any(|word| word.trim_matches(['"', '\'']).strip_prefix(key) == Some(":"))
    };
    let line = key.and_then(|key| text.lines().position(|line| has_key(line, key))).map(|line| line + 1);
    match line {
        Some(line) => {
            let what = said.split(" at line ").next().unwrap_or_default();
            format!("line {line}: {what}")
        }
        None => said,
    }
}

/// A message of serde without the values that it quotes: they may be passwords and tokens, and errors go to the journal.
fn without_values(message: &str) -> String {
    let mut rest = message;
    let mut said = String::new();
    let quotes = [("\"", '"'), ("integer `", '`'), ("floating point `", '`'), ("character `", '`')];
    while let Some((at, open, close)) =
        quotes.iter().filter_map(|(open, close)| Some((rest.find(open)?, *open, *close))).min()
    {
        let from = at + open.len();
        let mut is_escaped = false;
        let end = rest[from..].find(|c| {
            let is_end = c == close && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        });
        said.push_str(&rest[..from]);
        said.push_str("...");
        // Without an end nothing more is said.
        rest = end.map_or("", |end| &rest[from + end..]);
        if !rest.is_empty() {
            said.push(close);
            rest = &rest[close.len_utf8()..];
        }
    }
    said + rest
}

/// 64 hexadecimal digits.
fn digest(text: &str) -> Option<[u8; 32]> {
    let text = text.as_bytes();
    let mut all = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, pair) in all.iter_mut().zip(text.chunks(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(all)
}

//! Decides who may read: basic authentication with bcrypt, bearer tokens. A comparison takes the same time for every
//! result.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac};
use subtle::ConstantTimeEq;

/// The outcomes of bcrypt that are remembered.
const REMEMBERED: usize = 100;
/// Checked for a user that does not exist, so that the answer takes as long: bcrypt of a random text, cost 10.
const NOBODY: &str = "$2b$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy";

/// The SHA-256 of a text.
pub fn sha256(text: &[u8]) -> [u8; 32] {
    let mut all = [0; 32];
    all.copy_from_slice(digest::digest(&digest::SHA256, text).as_ref());
    all
}

/// What is known of a request's credentials.
#[derive(Debug)]
pub enum Verdict {
    /// It may read.
    Yes,
    /// It may not.
    No,
    /// Unknown until [`Access::verify`] has checked it, which takes a while.
    Ask(Credentials),
}

/// A user's name and password, not judged yet.
pub struct Credentials {
    user: String,
    password: String,
    key: [u8; 32],
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // No password in a log.
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Decides who may read. Without users and tokens everybody may.
pub struct Access {
    users: BTreeMap<String, String>,
    tokens: Vec<[u8; 32]>,
    /// Random for each process, so that what is remembered of passwords is worthless elsewhere.
    secret: hmac::Key,
    remembered: Mutex<HashMap<[u8; 32], bool>>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("users", &self.users.len()).field("tokens", &self.tokens.len()).finish()
    }
}

impl Default for Access {
    fn default() -> Self {
        Access::new(BTreeMap::new(), Vec::new())
    }
}

impl Access {
    /// Users with their bcrypt hashes, and the SHA-256 of tokens.
    ///
    /// # Panics
    /// Where the kernel has no random numbers.
    pub fn new(users: BTreeMap<String, String>, tokens: Vec<[u8; 32]>) -> Self {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).expect("the kernel has random numbers");
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        Access { users, tokens, secret, remembered: Mutex::default() }
    }

    /// Keeps the remembered passwords if the users are the same: somebody who guesses must not make everybody wait for
    /// bcrypt again.
    pub(crate) fn remember(&mut self, before: &Access) {
        if self.users == before.users {
            self.secret = before.secret.clone();
            *self.remembered() = before.remembered().clone();
        }
    }

    /// Whether everybody may read.
    pub fn is_open(&self) -> bool {
        self.users.is_empty() && self.tokens.is_empty()
    }

    /// Judges the header `Authorization`.
    pub fn judge(&self, header: Option<&str>) -> Verdict {
        if self.is_open() {
            return Verdict::Yes;
        }
        let Some((scheme, rest)) = header.and_then(|header| header.trim().split_once(' ')) else { return Verdict::No };
        if scheme.eq_ignore_ascii_case("bearer") {
            let shown = sha256(rest.trim().as_bytes());
            // Compare all, so that the time does not tell which was nearly right.
            let is_known = self.tokens.iter().fold(0, |found, token| found | token.ct_eq(&shown).unwrap_u8());
            return if is_known == 1 { Verdict::Yes } else { Verdict::No };
        }
        if !scheme.eq_ignore_ascii_case("basic") || self.users.is_empty() {
            return Verdict::No;
        }
        let decoded = STANDARD.decode(rest.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let Some((user, password)) = decoded.as_deref().and_then(|text| text.split_once(':')) else {
            return Verdict::No;
        };
        let mut tag = hmac::Context::with_key(&self.secret);
        // The zero byte separates: no user name contains one.
        [user.as_bytes(), &[0], password.as_bytes()].iter().for_each(|part| tag.update(part));
        let mut key = [0; 32];
        key.copy_from_slice(tag.sign().as_ref());
        match self.remembered().get(&key) {
            Some(true) => Verdict::Yes,
            Some(false) => Verdict::No,
            None => Verdict::Ask(Credentials { user: user.to_owned(), password: password.to_owned(), key }),
        }
    }

    /// Asks bcrypt, which takes tens of milliseconds by design, and remembers the answer.
    pub fn verify(&self, credentials: &Credentials) -> bool {
        let known = self.users.get(&credentials.user);
        // Take the costliest hash, so that the time does not tell which users exist.
        let cost = |hash: &&String| hash.parse::<bcrypt::HashParts>().map_or(0, |parts| parts.get_cost());
        let costliest = self.users.values().max_by_key(cost);
        let someone = known.or(costliest).map_or(NOBODY, String::as_str);
        let fits = bcrypt::verify(&credentials.password, someone).unwrap_or(false);
        // A cost is a power of two: n, n + 1 ... most - 1 take what is missing from n to most.
        if let (Some(known), Some(costliest)) = (known, costliest) {
            for cost in cost(&known)..cost(&costliest) {
                let _ = bcrypt::hash_with_salt(&credentials.password, cost, [0; 16]);
            }
        }
        let is_right = fits && known.is_some();
        let mut remembered = self.remembered();
        if remembered.len() >= REMEMBERED {
            // Right passwords are few; guesses must not push them out.
            remembered.retain(|_, is_right| *is_right);
        }
        if remembered.len() < REMEMBERED {
            remembered.insert(credentials.key, is_right);
        }
        is_right
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], bool>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn basic(text: &str) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    fn access() -> Access {
        let users = [("ada", "love"), ("bob", "build")];
        let users = users.map(|(user, word)| (user.to_owned(), bcrypt::hash(word, 4).unwrap()));
        Access::new(users.into(), vec![sha256(b"a long enough token")])
    }

    /// As the server does it.
    fn may(access: &Access, header: &str) -> bool {
        match access.judge(Some(header)) {
            Verdict::Yes => true,
            Verdict::No => false,
            Verdict::Ask(credentials) => access.verify(&credentials),
        }
    }

    #[test]
    fn only_the_right_word_of_the_right_user_opens() {
        let access = access();
        assert!(may(&access, &basic("ada:love")) && may(&access, &basic("bob:build")));
        assert!(may(&access, "Bearer a long enough token") && may(&access, "bearer  a long enough token "));
        let wrong = ["ada:build", "ada:", ":love", "eve:love", "ada", "ada\0:love", "", "ADA:love"];
        assert!(wrong.iter().all(|text| !may(&access, &basic(text))));
        for header in ["", "Basic", "Basic !", "Bearer", "Bearer a long enough toke", "Digest x", "Bearer love"] {
            assert!(!may(&access, header), "{header:?}");
        }
        assert!(matches!(access.judge(None), Verdict::No));
    }

    /// Costs 4 and 10: 64 times as long.
    #[test]
    fn a_wrong_password_takes_as_long_for_every_user() {
        let users =
            [("ada", 4), ("bob", 10)].map(|(user, cost)| (user.to_owned(), bcrypt::hash("love", cost).unwrap()));
        let access = Access::new(users.into(), Vec::new());
        let took = |user: &str| {
            let guess = |number: u32| {
                let credentials = Credentials { user: user.to_owned(), password: number.to_string(), key: [0; 32] };
                let begun = Instant::now();
                assert!(!access.verify(&credentials));
                begun.elapsed()
            };
            (0..5).map(guess).min().unwrap()
        };
        let [cheap, costly, nobody] = ["ada", "bob", "eve"].map(took);
        for one in [cheap, nobody] {
            assert!(one < costly * 8 && costly < one * 8, "{cheap:?}, {costly:?}, {nobody:?}");
        }
    }

    #[test]
    fn bcrypt_is_asked_once_for_the_same_words() {
        let access = access();
        for (text, is_right) in [("ada:love", true), ("ada:wrong", false)] {
            let Verdict::Ask(credentials) = access.judge(Some(&basic(text))) else { panic!("{text}: not asked") };
            assert_eq!(access.verify(&credentials), is_right);
            assert!(!matches!(access.judge(Some(&basic(text))), Verdict::Ask(_)), "{text}: asked again");
        }
        // Guesses do not push out who is right, and do not fill the memory.
        for guess in 0..3 * REMEMBERED {
            if let Verdict::Ask(credentials) = access.judge(Some(&basic(&format!("ada:{guess}")))) {
                assert!(!access.verify(&credentials));
            }
        }
        assert!(matches!(access.judge(Some(&basic("ada:love"))), Verdict::Yes));
        assert!(access.remembered().len() <= REMEMBERED);
    }

    #[test]
    fn a_renewed_configuration_keeps_what_bcrypt_said_of_the_same_users() {
        let (before, mut same, mut other) = (access(), Access::default(), Access::default());
        assert!(may(&before, &basic("ada:love")));
        same.users = before.users.clone();
        same.remember(&before);
        assert!(matches!(same.judge(Some(&basic("ada:love"))), Verdict::Yes));
        other.users.insert("ada".to_owned(), bcrypt::hash("lace", 4).unwrap());
        other.remember(&before);
        assert!(!may(&other, &basic("ada:love")), "another password");
    }

    #[test]
    fn without_users_and_tokens_everybody_may() {
        assert!(matches!(Access::default().judge(None), Verdict::Yes));
    }
}

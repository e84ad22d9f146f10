//! The connections: their number is limited, in total and for each address. If all places are in use, a connection that
//! has not yet made an allowed request must leave. It is one of the address that has most of these, so a client that
//! opens many connections loses only its own. Where every request is allowed, this says nothing of who is welcome: then one
//! that made a request leaves too, the one whose last request is the oldest.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Connections at the same time.
pub(crate) const CONNECTIONS: usize = 64;
/// Connections of one address at the same time, so that no one client has them all. Of IPv6 a network of 64 bits counts as one
/// address: whoever has one address there has all of them.
const OF_A_PEER: usize = 16;
/// The part of an IPv6 address that is its network's.
const NETWORK: u128 = !0 << 64;
/// The same of this machine, through which others may come (`ssh -L`).
const OF_LOOPBACK: usize = 48;
/// In place of the number of the last request: the answer is a stream of events.
const STREAMS: u64 = u64::MAX;

/// The connections, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    all: Arc<Mutex<Vec<Arc<Taken>>>>,
    /// Counts requests.
    requests: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Taken {
    /// The address, or the network, that has so many places.
    peer: IpAddr,
    /// The same, but each address of this machine by itself.
    address: IpAddr,
    leave: Notify,
    standing: AtomicU8,
    /// The number of its last request.
    asked: AtomicU64,
}

/// How far a connection has come. Of two of the same address the lower one has to leave first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Standing {
    /// It showed no password or token, or a wrong one.
    Refused,
    /// It has not made a request yet.
    New,
    /// Its request is being checked.
    Asking,
    /// It made an allowed request: it stays, where not every request is allowed.
    Known,
}

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    own: Arc<Taken>,
}

impl Places {
    /// A place for one more connection of an address; `None` where all are taken by connections that may stay. With
    /// `allows_all` every request is allowed.
    pub fn take(&self, address: IpAddr, allows_all: bool) -> Option<Place> {
        let address = match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK))
            }
            address => address,
        };
        // All of 127.0.0.0/8 is this machine.
        let (peer, most) = match address.is_loopback() {
            true => (IpAddr::V4(Ipv4Addr::LOCALHOST), OF_LOOPBACK),
            false => (address, OF_A_PEER),
        };
        let mut all = self.all();
        let has_most = all.iter().filter(|one| one.peer == peer).count() >= most;
        if has_most || all.len() >= CONNECTIONS {
            let is_meant = |one: &Taken| !has_most || one.peer == peer;
            let idle = || who_is_idle(&all, is_meant).filter(|_| allows_all);
            let leaving = who_leaves(&all, is_meant).or_else(idle)?;
            all.remove(leaving).leave.notify_one();
        }
        let standing = AtomicU8::new(Standing::New as u8);
        let own = Arc::new(Taken { peer, address, leave: Notify::new(), standing, asked: AtomicU64::new(0) });
        all.push(Arc::clone(&own));
        Some(Place { places: self.clone(), own })
    }

    /// Whether nobody is connected.
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Taken>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which of these connections has to leave, if one may: of the address with most of them, the one in the lowest state,
/// and the oldest of these.
fn who_leaves(all: &[Arc<Taken>], is_meant: impl Fn(&Taken) -> bool) -> Option<usize> {
    let may_leave = |one: &&Arc<Taken>| !one.is(Standing::Known) && is_meant(one);
    let of_its_address = |address| all.iter().filter(may_leave).filter(|one| one.address == address).count();
    let meant = all.iter().enumerate().filter(|(_, one)| may_leave(one));
    let leaving = meant.max_by_key(|(at, one)| {
        (of_its_address(one.address), Reverse(one.standing.load(Ordering::Relaxed)), Reverse(*at))
    });
    leaving.map(|(at, _)| at)
}

/// Which of these connections has to leave of those that made a request: of the address with most of them, the one whose
/// last request is the oldest. Streams stay: a page that watches is never idle, and would only connect again.
fn who_is_idle(all: &[Arc<Taken>], is_meant: impl Fn(&Taken) -> bool) -> Option<usize> {
    let may_leave = |one: &Arc<Taken>| is_meant(one) && one.asked.load(Ordering::Relaxed) != STREAMS;
    let of_its_address = |address| all.iter().filter(|one| may_leave(one) && one.address == address).count();
    let meant = all.iter().enumerate().filter(|(_, one)| may_leave(one));
    let leaving =
        meant.max_by_key(|(_, one)| (of_its_address(one.address), Reverse(one.asked.load(Ordering::Relaxed))));
    leaving.map(|(at, _)| at)
}

impl Taken {
    fn is(&self, standing: Standing) -> bool {
        self.standing.load(Ordering::Relaxed) == standing as u8
    }
}

impl Place {
    /// Sets the state of the connection. One that made an allowed request keeps this state.
    pub fn stands(&self, standing: Standing) {
        self.own.asked.store(self.places.requests.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        if !self.own.is(Standing::Known) {
            self.own.standing.store(standing as u8, Ordering::Relaxed);
        }
    }

    /// Its answer is a stream of events.
    pub fn streams(&self) {
        self.own.asked.store(STREAMS, Ordering::Relaxed);
    }

    /// Whose it is: an address, or a network of IPv6.
    pub fn address(&self) -> IpAddr {
        self.own.address
    }

    /// Waits until it has to leave.
    pub async fn leave(&self) {
        self.own.leave.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.all().retain(|one| !Arc::ptr_eq(one, &self.own));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_connections_and_leaves_the_others_alone() {
        let places = Places::default();
        let of = |text: &str| {
            let place = places.take(text.parse().unwrap(), false);
            place.iter().for_each(|place| place.stands(Standing::Known));
            place
        };
        let mut all: Vec<_> = (0..OF_A_PEER).map(|_| of("192.0.2.1").unwrap()).collect();
        assert!(of("192.0.2.1").is_none() && of("::ffff:192.0.2.1").is_none());
        assert!(of("192.0.2.2").is_some() && of("2001:db8::1").is_some());
        all.pop();
        assert!(of("192.0.2.1").is_some());
        // Whoever has an address of IPv6 has 2^64 of them.
        let of_a_network: Vec<_> =
            (0..OF_A_PEER).map(|number| of(&format!("2001:db8:0:1::{number:x}")).unwrap()).collect();
        assert!(of("2001:db8:0:1::1").is_none() && of("2001:db8:0:1:ffff:ffff:ffff:ffff").is_none());
        assert!(of("2001:db8:0:2::1").is_some() && of("2001:db8:0:0:ffff::").is_some());
        drop((of_a_network, all));
        let local: Vec<_> = (0..OF_LOOPBACK).map(|number| of(&format!("127.0.0.{}", number + 1)).unwrap()).collect();
        assert!(of("127.0.0.1").is_none() && of("::1").is_none());
        drop(local);
        assert!(places.is_empty(), "connections that ended are forgotten");
    }

    /// Whether a connection was told to leave.
    fn told(place: &Place) -> bool {
        !place.places.all().iter().any(|one| Arc::ptr_eq(one, &place.own))
    }

    #[test]
    fn who_asks_for_nothing_makes_room() {
        let places = Places::default();
        let of = |text: &str| places.take(text.parse().unwrap(), false).unwrap();
        let known = of("192.0.2.1");
        known.stands(Standing::Known);
        known.stands(Standing::Refused);
        let idle: Vec<_> = (1..OF_A_PEER).map(|_| of("192.0.2.1")).collect();
        let other = of("192.0.2.2");
        let next = of("192.0.2.1");
        assert!(told(&idle[0]) && !told(&idle[1]) && !told(&known) && !told(&other) && !told(&next));
        // Where all places are taken, those of the address that has most of them, and then the oldest of any address.
        let more: Vec<_> = (0..CONNECTIONS - 3).map(|number| of(&format!("192.0.3.{number}"))).collect();
        assert_eq!(places.all().len(), CONNECTIONS);
        assert!(idle.iter().all(told) && !told(&next) && !told(&other) && !told(&known));
        let last = of("192.0.4.1");
        assert!(told(&other) && !told(&next) && !told(&known) && !told(&last) && !more.iter().any(told));
    }

    #[test]
    fn who_opens_many_closes_its_own() {
        let places = Places::default();
        let of = |text: &str| places.take(text.parse().unwrap(), false).unwrap();
        // This machine's places are counted together, and shared by its addresses.
        let good = of("127.0.0.1");
        let many: Vec<_> = (0..1000).map(|number| of(&format!("127.0.0.{}", 2 + number % 16))).collect();
        assert!(!told(&good));
        assert_eq!(many.iter().filter(|place| !told(place)).count(), OF_LOOPBACK - 1);
    }

    #[test]
    fn of_one_address_who_has_come_the_least_far_leaves_first() {
        let places = Places::default();
        let of = || places.take("192.0.2.1".parse().unwrap(), false).unwrap();
        let order = [Standing::Asking, Standing::New, Standing::New, Standing::Refused];
        let all: Vec<_> = (0..OF_A_PEER).map(|_| of()).collect();
        all.iter().enumerate().for_each(|(number, place)| place.stands(order[number / 4]));
        // Who comes asks at once.
        let come =
            |count: usize| (0..count).map(|_| of()).inspect(|one| one.stands(Standing::Asking)).collect::<Vec<_>>();
        let left = || all.iter().filter(|place| told(place)).count();
        let first = come(3);
        assert!(left() == 3 && all[12..15].iter().all(told), "of those that were refused, the oldest");
        let then = come(8);
        assert!(
            left() == 11 && all[15..].iter().chain(&all[4..11]).all(told),
            "then those that asked for nothing, the oldest"
        );
        drop((first, then));
    }

    /// Pages that watch are never idle: another connection of the same address is refused, and closes none of them.
    #[test]
    fn who_watches_stays() {
        let places = Places::default();
        let of = |text: &str| {
            let place = places.take(text.parse().unwrap(), true)?;
            place.stands(Standing::Known);
            Some(place)
        };
        let pages: Vec<_> = (0..OF_A_PEER).map(|_| of("192.0.2.1").unwrap()).collect();
        pages.iter().for_each(Place::streams);
        assert!(of("192.0.2.1").is_none() && !pages.iter().any(told));
        assert!(of("192.0.2.2").is_some());
        // One that asked for something else leaves before them.
        pages[3].stands(Standing::Known);
        let next = of("192.0.2.1").unwrap();
        assert!(told(&pages[3]) && !told(&next));
        assert_eq!(pages.iter().filter(|page| told(page)).count(), 1);
    }

    /// Where every request is allowed, whoever holds all places with requests loses the one that was idle longest.
    #[test]
    fn where_all_is_allowed_the_longest_idle_leaves() {
        let places = Places::default();
        let of = |text: &str| {
            let place = places.take(text.parse().unwrap(), true);
            place.iter().for_each(|place| place.stands(Standing::Known));
            place.unwrap()
        };
        let good = of("127.0.0.1");
        let many: Vec<_> = (1..OF_LOOPBACK).map(|_| of("127.0.0.1")).collect();
        good.stands(Standing::Asking);
        many[0].stands(Standing::Asking);
        let next = of("127.0.0.1");
        assert!(told(&many[1]) && !told(&many[0]) && !told(&good) && !told(&next));
        assert_eq!(many.iter().filter(|place| told(place)).count(), 1);
        // One that has not asked leaves before those that did.
        let silent = places.take("127.0.0.1".parse().unwrap(), true).unwrap();
        assert!(told(&many[2]));
        let _last = of("127.0.0.1");
        assert!(told(&silent) && !told(&many[3]));
        // Another address has its places, and where an address has many it loses its own.
        let others: Vec<_> = (0..CONNECTIONS - OF_LOOPBACK).map(|number| of(&format!("192.0.3.{number}"))).collect();
        let new = of("192.0.4.1");
        assert!(told(&many[3]) && !told(&new) && !others.iter().any(told));
    }
}

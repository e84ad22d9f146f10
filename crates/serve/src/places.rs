//! Who is connected: so many places, and so many for one address. Where all are taken, the oldest connection that has not
//! made a request that it may make has to leave. So nobody who only holds connections keeps others out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
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

/// The connections, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places(Arc<Mutex<Vec<Arc<Taken>>>>);

#[derive(Debug)]
struct Taken {
    peer: IpAddr,
    leave: Notify,
    is_known: std::sync::atomic::AtomicBool,
}

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    own: Arc<Taken>,
}

impl Places {
    /// A place for one more connection of an address; `None` where all are taken by connections that may stay.
    pub fn take(&self, peer: IpAddr) -> Option<Place> {
        // All of 127.0.0.0/8 is this machine.
        let (peer, most) = match peer.to_canonical() {
            peer if peer.is_loopback() => (IpAddr::V4(Ipv4Addr::LOCALHOST), OF_LOOPBACK),
            IpAddr::V6(peer) => (IpAddr::V6(Ipv6Addr::from_bits(peer.to_bits() & NETWORK)), OF_A_PEER),
            peer @ IpAddr::V4(_) => (peer, OF_A_PEER),
        };
        let mut all = self.all();
        let has_most = all.iter().filter(|one| one.peer == peer).count() >= most;
        if has_most || all.len() >= CONNECTIONS {
            let may_leave = |one: &Arc<Taken>| !one.is_known() && (!has_most || one.peer == peer);
            let oldest = all.iter().position(may_leave)?;
            all.remove(oldest).leave.notify_one();
        }
        let own = Arc::new(Taken { peer, leave: Notify::new(), is_known: false.into() });
        all.push(Arc::clone(&own));
        Some(Place { places: self.clone(), own })
    }

    /// Whether nobody is connected.
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Taken>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn is_known(&self) -> bool {
        self.is_known.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Place {
    /// It made a request that it may make: it stays.
    pub fn know(&self) {
        self.own.is_known.store(true, std::sync::atomic::Ordering::Relaxed);
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
            let place = places.take(text.parse().unwrap());
            place.iter().for_each(Place::know);
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

    #[test]
    fn who_asks_for_nothing_makes_room() {
        let places = Places::default();
        let of = |text: &str| places.take(text.parse().unwrap());
        let known = of("192.0.2.1").unwrap();
        known.know();
        let idle: Vec<_> = (1..OF_A_PEER).map(|_| of("192.0.2.1").unwrap()).collect();
        let other = of("192.0.2.2").unwrap();
        let next = of("192.0.2.1").unwrap();
        let told = |place: &Place| !places.all().iter().any(|one| Arc::ptr_eq(one, &place.own));
        assert!(told(&idle[0]) && !told(&idle[1]) && !told(&known) && !told(&other) && !told(&next));
        // Where all places are taken, the oldest of any address.
        let more: Vec<_> = (0..CONNECTIONS).map(|number| of(&format!("192.0.3.{number}")).unwrap()).collect();
        assert_eq!(places.all().len(), CONNECTIONS);
        assert!(told(&other) && !told(&known) && !told(&more[CONNECTIONS - 1]));
    }
}

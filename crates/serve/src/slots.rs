//! The slots of connections: a limited number in total and for each address. Where none is free, a new connection takes
//! the slot of the oldest one without an allowed request; where all have made one, that of the one idle longest. Live
//! pages stay.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Connections at the same time.
const CONNECTIONS: usize = 64;
/// Connections of one address: as many as there are event streams, and some for scrapes beside them. Of IPv6 a network
/// of 64 bits counts as one address: whoever has one address there has all of them.
const OF_AN_ADDRESS: usize = 40;
/// The part of an IPv6 address that is its network's.
const NETWORK: u128 = !0 << 64;
/// In place of the number of the last request: the answer is a stream of events.
const STREAM: u64 = u64::MAX;

/// The slots in use, the oldest first. A slot counts until its connection drops it.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    all: Vec<Weak<Slot>>,
    /// Counts requests.
    requests: Arc<AtomicU64>,
}

/// The slot of one connection.
#[derive(Debug)]
pub(crate) struct Slot {
    /// An address, or a network of IPv6.
    pub address: IpAddr,
    /// Closed at once when the connection has to leave: its task may have its turn much later.
    stream: Mutex<Option<TcpStream>>,
    leave: Notify,
    /// The number of the last allowed request; 0 before the first, [`STREAM`] for a live page.
    last: AtomicU64,
    requests: Arc<AtomicU64>,
}

impl Slots {
    /// A slot for one more connection of an address; `None` where live pages have all that it could take.
    pub fn take(&mut self, address: IpAddr) -> Option<Arc<Slot>> {
        let address = match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK)),
            address => address,
        };
        let all: Vec<_> = self.all.iter().filter_map(Weak::upgrade).collect();
        let own = all.iter().filter(|slot| slot.address == address);
        let is_at_cap = own.count() >= OF_AN_ADDRESS;
        let mut leaving = None;
        if is_at_cap || all.len() >= CONNECTIONS {
            let may_leave = |slot: &&Arc<Slot>| slot.last() != STREAM && (!is_at_cap || slot.address == address);
            // Of equal ones the first, which is the oldest.
            leaving = Some(all.iter().filter(may_leave).min_by_key(|slot| slot.last())?);
        }
        if let Some(slot) = leaving {
            drop(slot.with(Option::take));
            slot.leave.notify_one();
        }
        let stay = all.iter().filter(|slot| leaving.is_none_or(|leaving| !Arc::ptr_eq(leaving, slot)));
        self.all = stay.map(Arc::downgrade).collect();
        let slot = Arc::new(Slot {
            address,
            stream: Mutex::default(),
            leave: Notify::new(),
            last: AtomicU64::new(0),
            requests: Arc::clone(&self.requests),
        });
        self.all.push(Arc::downgrade(&slot));
        Some(slot)
    }

    /// Whether nobody is connected.
    pub fn is_empty(&self) -> bool {
        self.all.iter().all(|slot| slot.strong_count() == 0)
    }
}

impl Slot {
    fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Gives the connection its stream.
    pub fn hold(&self, stream: TcpStream) {
        self.with(|own| *own = Some(stream));
    }

    /// Uses the stream; there is none after the connection had to leave.
    pub fn with<T>(&self, act: impl FnOnce(&mut Option<TcpStream>) -> T) -> T {
        act(&mut self.stream.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A request begins: a connection that made an allowed one before is not idle.
    pub fn asks(&self) {
        if self.last() != 0 {
            self.is_allowed(false);
        }
    }

    /// The request was allowed; the answer may be a stream of events.
    pub fn is_allowed(&self, is_stream: bool) {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        self.last.store(if is_stream { STREAM } else { number }, Ordering::Relaxed);
    }

    /// Waits until it has to leave.
    pub async fn leave(&self) {
        self.leave.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots, and who took one of them in order.
    #[derive(Default)]
    struct Server {
        slots: Slots,
        taken: Vec<Arc<Slot>>,
    }

    impl Server {
        /// Connections of these addresses; false where one was refused.
        fn take(&mut self, addresses: impl IntoIterator<Item = String>) -> bool {
            addresses.into_iter().all(|address| {
                let slot = self.slots.take(address.parse().unwrap());
                slot.map(|slot| self.taken.push(slot)).is_some()
            })
        }

        /// The numbers of the connections that were told to leave.
        fn left(&self) -> Vec<usize> {
            let stays = |slot: &Arc<Slot>| self.slots.all.iter().any(|one| one.as_ptr() == Arc::as_ptr(slot));
            (0..self.taken.len()).filter(|number| !stays(&self.taken[*number])).collect()
        }
    }

    fn of(address: &str, number: usize) -> impl Iterator<Item = String> {
        std::iter::repeat_n(address.to_owned(), number)
    }

    #[test]
    fn an_address_at_its_cap_loses_its_own_oldest_that_asked_for_nothing() {
        let mut server = Server::default();
        assert!(server.take(of("192.0.2.2", 1).chain(of("192.0.2.1", OF_AN_ADDRESS))));
        server.taken[1].is_allowed(false);
        assert!(server.left().is_empty());
        assert!(server.take(of("192.0.2.1", 1).chain(of("::ffff:192.0.2.1", 1))));
        assert_eq!(server.left(), [2, 3]);
        // All addresses have this limit: this machine's, and networks of IPv6.
        for (addresses, other) in
            [("127.0.0.1", "127.0.0.2"), ("2001:db8:0:1::", "2001:db8:0:2::1"), ("::1", "::1:0:0:0:1")]
        {
            let mut server = Server::default();
            let last = |number| if addresses.ends_with("::") { format!("{number:x}") } else { String::new() };
            assert!(server.take((0..=OF_AN_ADDRESS).map(|number| format!("{addresses}{}", last(number)))));
            assert_eq!(server.left(), [0], "{addresses}");
            assert!(server.take(of(other, 1)));
            assert_eq!(server.left(), [0], "{other}");
        }
    }

    #[test]
    fn with_all_slots_in_use_the_oldest_that_asked_for_nothing_leaves() {
        let mut server = Server::default();
        assert!(server.take((0..CONNECTIONS).map(|number| format!("192.0.3.{number}"))));
        server.taken[0].is_allowed(false);
        server.taken[1].is_allowed(true);
        // Asking is not enough.
        server.taken[2].asks();
        assert!(server.take(of("192.0.2.1", 1)));
        assert_eq!(server.left(), [2]);
        // Who left by itself makes room too.
        drop(server.taken.remove(10));
        assert!(server.take(of("192.0.2.1", 1)));
        assert_eq!(server.left(), [2]);
    }

    #[test]
    fn where_all_have_asked_the_one_idle_longest_leaves_and_live_pages_stay() {
        let mut server = Server::default();
        assert!(server.take(of("127.0.0.1", OF_AN_ADDRESS)));
        server.taken.iter().for_each(|slot| slot.is_allowed(false));
        server.taken[0].asks();
        server.taken[1].is_allowed(true);
        assert!(server.take(of("127.0.0.1", 1)));
        assert_eq!(server.left(), [2]);
        server.taken.iter().for_each(|slot| slot.is_allowed(true));
        assert!(!server.take(of("127.0.0.1", 1)) && server.take(of("127.0.0.2", 1)));
        assert_eq!(server.left(), [2]);
        // A page that asks for something else is none any more.
        server.taken[5].asks();
        assert!(server.take(of("127.0.0.1", 1)));
        assert_eq!(server.left(), [2, 5]);
        server.taken.clear();
        assert!(server.slots.is_empty());
    }
}

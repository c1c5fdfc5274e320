//! A client: pings each address all the time, by the kernel's own means, so that it sends to the
//! station that its kernel believes in.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::net::{AddressFamily, SocketType, ipproto, socket};

use super::layout::{address, node_of};
use crate::bench::pause;

/// The time between two pings of an address.
const EVERY: Duration = Duration::from_millis(2);

const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// The pings of all addresses.
pub struct Client {
    began: Instant,
    stop: Arc<AtomicBool>,
    pingers: Vec<Pinger>,
}

/// The pings of one address.
struct Pinger {
    /// When answers came.
    answers: Arc<Mutex<Vec<Duration>>>,
    threads: Vec<JoinHandle<()>>,
}

// === impl Client ===

impl Client {
    /// Begins to ping so many addresses.
    pub fn start(addresses: usize) -> anyhow::Result<Self> {
        let mut client = Self {
            began: Instant::now(),
            stop: Arc::default(),
            pingers: Vec::new(),
        };
        for number in 0..addresses {
            let pinger = client.ping(address(number))?;
            client.pingers.push(pinger);
        }
        Ok(client)
    }

    fn ping(&self, address: Ipv4Addr) -> anyhow::Result<Pinger> {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP));
        let socket: OwnedFd = socket.context("no socket for pings")?;
        let socket = UdpSocket::from(socket);
        socket.connect(SocketAddrV4::new(address, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let answers: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let (sender, stop) = (socket.try_clone()?, Arc::clone(&self.stop));
        let sending = std::thread::spawn(move || {
            let mut next = Instant::now();
            let mut number = 0_u16;
            while !stop.load(Ordering::Relaxed) {
                number = number.wrapping_add(1);
                let [high, low] = number.to_be_bytes();
                // The kernel fills in checksum and identifier. Without a route there is an error,
                // and later there may be none.
                let _ = sender.send(&[ECHO, 0, 0, 0, 0, 0, high, low]);
                next += EVERY;
                pause(next.saturating_duration_since(Instant::now()));
            }
        });
        let (noted, stop, began) = (Arc::clone(&answers), Arc::clone(&self.stop), self.began);
        let receiving = std::thread::spawn(move || {
            let mut room = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                if socket.recv(&mut room).is_ok() && room.first() == Some(&ECHO_REPLY) {
                    let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                    noted.push(began.elapsed());
                }
            }
        });
        Ok(Pinger {
            answers,
            threads: vec![sending, receiving],
        })
    }

    /// The time since the first ping.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The times between answers: from the last one before `since` to the last one so far.
    fn all_gaps(&self, address: usize, since: Duration) -> Vec<Duration> {
        let Some(pinger) = self.pingers.get(address) else {
            return Vec::new();
        };
        let answers = pinger.answers.lock();
        let answers = answers.unwrap_or_else(PoisonError::into_inner);
        let first = answers.partition_point(|at| *at < since).saturating_sub(1);
        let later = answers.get(first..).unwrap_or_default();
        let pairs = later.iter().zip(later.iter().skip(1));
        pairs.map(|(one, next)| next.saturating_sub(*one)).collect()
    }

    /// The longest time without an answer.
    pub fn longest_gap(&self, address: usize, since: Duration) -> Duration {
        let gaps = self.all_gaps(address, since);
        gaps.into_iter().max().unwrap_or_default()
    }

    /// How often there was no answer for so long.
    pub fn gaps(&self, address: usize, since: Duration, least: Duration) -> usize {
        let gaps = self.all_gaps(address, since);
        gaps.into_iter().filter(|gap| *gap >= least).count()
    }

    /// Waits until each address answers.
    pub async fn until_all_answer(&self, deadline: Duration) -> anyhow::Result<()> {
        for number in 0..self.pingers.len() {
            let since = self.now();
            self.until(number, deadline, || self.answers_since(number, since) > 10)
                .await?;
        }
        Ok(())
    }

    /// Waits until there are answers of an address that nothing answered at this time.
    pub async fn until_answered(
        &self,
        address: usize,
        since: Duration,
        deadline: Duration,
    ) -> anyhow::Result<()> {
        // Some may have been on their way.
        self.until(address, deadline, || {
            self.answers_since(address, since) > 20
        })
        .await
    }

    fn answers_since(&self, address: usize, since: Duration) -> usize {
        let Some(pinger) = self.pingers.get(address) else {
            return 0;
        };
        let answers = pinger.answers.lock();
        let answers = answers.unwrap_or_else(PoisonError::into_inner);
        answers.len() - answers.partition_point(|at| *at < since)
    }

    /// The node to which the kernel sends what is for an address.
    pub fn owner(number: usize) -> anyhow::Result<u8> {
        let address = address(number).to_string();
        let table = std::fs::read_to_string("/proc/net/arp")?;
        let mut lines = table.lines().map(|line| line.split_whitespace());
        let entry = lines.find_map(|mut words| {
            let is_it = words.next() == Some(&address);
            is_it.then(|| words.nth(2).map(str::to_owned)).flatten()
        });
        let mac = entry.with_context(|| format!("{address} is not known"))?;
        node_of(&mac).with_context(|| format!("{address} is at {mac}, which is no node"))
    }

    /// Waits until what is for an address is sent to a node.
    pub async fn until_owned_by(
        &self,
        address: usize,
        node: u8,
        deadline: Duration,
    ) -> anyhow::Result<()> {
        self.until(address, deadline, || {
            Self::owner(address).is_ok_and(|owner| owner == node)
        })
        .await
    }

    async fn until(
        &self,
        number: usize,
        deadline: Duration,
        met: impl Fn() -> bool,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        while !met() {
            if began.elapsed() > deadline {
                bail!("{} did not settle within {deadline:?}", address(number));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for pinger in &mut self.pingers {
            for thread in pinger.threads.drain(..) {
                // It has nothing to report.
                let _ = thread.join();
            }
        }
    }
}

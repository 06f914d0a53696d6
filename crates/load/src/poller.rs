//! Waits on sockets with epoll until a deadline, accurate to some microseconds.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

const SECOND_NS: u64 = 1_000_000_000;
const NEVER: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// If `sched_yield` takes longer, another thread ran; the time is then not counted as idle.
const YIELD_NS: u64 = 5_000;
/// Key of the timer; no socket has it.
const TIMER: usize = usize::MAX;

/// Registered sockets, each with a key.
pub(crate) struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    spin_ns: u64,
    idle_ns: u64,
    ready: Vec<(usize, EventFlags)>,
}

impl Poller {
    /// Events returned by one wait.
    pub(crate) const EVENTS_MAX: usize = 256;
    /// Typical wake-up latency.
    pub(crate) const WAKEUP_LATENCY_NS: u64 = 50_000;

    /// `spin_ns`: how long before a deadline it stops sleeping and polls instead.
    pub(crate) fn new(spin_ns: u64) -> io::Result<Poller> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // Edge-triggered: the timer is never read.
        let once = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER as u64), once)?;
        Ok(Poller {
            epoll,
            timer,
            spin_ns,
            idle_ns: 0,
            ready: Vec::with_capacity(Poller::EVENTS_MAX),
        })
    }

    /// Registers a socket.
    pub(crate) fn add(&self, socket: impl AsFd, key: usize, wants_write: bool) -> io::Result<()> {
        let data = EventData::new_u64(key as u64);
        Ok(epoll::add(&self.epoll, socket, data, interest(wants_write))?)
    }

    /// Changes the interest of a socket.
    pub(crate) fn modify(
        &self,
        socket: impl AsFd,
        key: usize,
        wants_write: bool,
    ) -> io::Result<()> {
        let data = EventData::new_u64(key as u64);
        Ok(epoll::modify(&self.epoll, socket, data, interest(wants_write))?)
    }

    /// Waits for events until the deadline.
    pub(crate) fn wait(&mut self, until_ns: u64) {
        let began_ns = clock::now();
        let left_ns = until_ns.saturating_sub(began_ns);
        let mut limit = Some(NEVER);
        if left_ns > self.spin_ns {
            let sleep_ns = left_ns - self.spin_ns;
            let it_value = Timespec {
                tv_sec: (sleep_ns / SECOND_NS) as i64,
                tv_nsec: (sleep_ns % SECOND_NS) as i64,
            };
            let time = Itimerspec { it_interval: NEVER, it_value };
            if timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time).is_ok() {
                limit = None;
            }
        }
        self.ready.clear();
        let mut buffer = [MaybeUninit::<Event>::uninit(); Poller::EVENTS_MAX];
        // On EINTR the caller waits again.
        if let Ok((events, _)) = epoll::wait(&self.epoll, &mut buffer, limit.as_ref()) {
            let ready = events.iter().map(|event| (event.data.u64() as usize, event.flags));
            self.ready.extend(ready);
        }
        if limit.is_some() && self.ready.is_empty() {
            let looked_ns = clock::now();
            self.idle_ns += looked_ns - began_ns;
            // Lets other threads of this CPU run, perhaps the server itself.
            rustix::thread::sched_yield();
            let yielded_ns = clock::now() - looked_ns;
            if yielded_ns < YIELD_NS {
                self.idle_ns += yielded_ns;
            }
        }
    }

    /// Returns and resets the time spent polling without events.
    pub(crate) fn take_idle_ns(&mut self) -> u64 {
        std::mem::take(&mut self.idle_ns)
    }

    /// Number of events of the last wait.
    pub(crate) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Key and flags of an event; `None` for the timer.
    pub(crate) fn event(&self, index: usize) -> Option<(usize, EventFlags)> {
        self.ready.get(index).copied().filter(|(key, _)| *key != TIMER)
    }
}

fn interest(wants_write: bool) -> EventFlags {
    let read = EventFlags::IN | EventFlags::RDHUP;
    if wants_write { read | EventFlags::OUT } else { read }
}

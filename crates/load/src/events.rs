//! Events: what sockets have to say, waited for until a moment that is met to some microseconds.

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
/// If it took longer, somebody else ran meanwhile: that is not our time.
const YIELD_NS: u64 = 5_000;
/// No socket has this key.
const TIMER: usize = usize::MAX;

/// Sockets that are looked at, each by a key.
pub(crate) struct Events {
    epoll: OwnedFd,
    timer: OwnedFd,
    awake_ns: u64,
    idle_ns: u64,
    found: Vec<(usize, EventFlags)>,
}

impl Events {
    /// How many are told at once.
    pub(crate) const MAX: usize = 256;
    /// Waking up takes about as long.
    pub(crate) const WAKING_NS: u64 = 50_000;

    /// So long before a moment that it waits for it stops sleeping, and looks again and again.
    pub(crate) fn new(awake_ns: u64) -> io::Result<Events> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // Told once each time it ends: nobody reads it.
        let once = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER as u64), once)?;
        Ok(Events { epoll, timer, awake_ns, idle_ns: 0, found: Vec::with_capacity(Events::MAX) })
    }

    /// Looks at one more.
    pub(crate) fn add(&self, socket: impl AsFd, key: usize, also_to_send: bool) -> io::Result<()> {
        let data = EventData::new_u64(key as u64);
        Ok(epoll::add(&self.epoll, socket, data, interest(also_to_send))?)
    }

    /// Looks at other things of it.
    pub(crate) fn change(
        &self,
        socket: impl AsFd,
        key: usize,
        also_to_send: bool,
    ) -> io::Result<()> {
        let data = EventData::new_u64(key as u64);
        Ok(epoll::modify(&self.epoll, socket, data, interest(also_to_send))?)
    }

    /// Waits until something has come, or until then.
    pub(crate) fn wait(&mut self, until_ns: u64) {
        let began_ns = clock::now();
        let left_ns = until_ns.saturating_sub(began_ns);
        let mut limit = Some(NEVER);
        if left_ns > self.awake_ns {
            let sleep_ns = left_ns - self.awake_ns;
            let it_value = Timespec {
                tv_sec: (sleep_ns / SECOND_NS) as i64,
                tv_nsec: (sleep_ns % SECOND_NS) as i64,
            };
            let time = Itimerspec { it_interval: NEVER, it_value };
            if timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time).is_ok() {
                limit = None;
            }
        }
        self.found.clear();
        let mut buffer = [MaybeUninit::<Event>::uninit(); Events::MAX];
        // Interrupted by a signal: there will be a next time.
        if let Ok((events, _)) = epoll::wait(&self.epoll, &mut buffer, limit.as_ref()) {
            let found = events.iter().map(|event| (event.data.u64() as usize, event.flags));
            self.found.extend(found);
        }
        if limit.is_some() && self.found.is_empty() {
            let looked_ns = clock::now();
            self.idle_ns += looked_ns - began_ns;
            // Whoever else is to run on this processor, perhaps the server itself, waits for nothing but us.
            rustix::thread::sched_yield();
            let yielded_ns = clock::now() - looked_ns;
            if yielded_ns < YIELD_NS {
                self.idle_ns += yielded_ns;
            }
        }
    }

    /// How long, since it was last asked, it looked without sleeping and found nothing.
    pub(crate) fn take_idle_ns(&mut self) -> u64 {
        std::mem::take(&mut self.idle_ns)
    }

    /// How many have something to say.
    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    /// The key of one of them, and what it says. `None` of what only woke.
    pub(crate) fn get(&self, number: usize) -> Option<(usize, EventFlags)> {
        self.found.get(number).copied().filter(|(key, _)| *key != TIMER)
    }
}

fn interest(also_to_send: bool) -> EventFlags {
    let read = EventFlags::IN | EventFlags::RDHUP;
    if also_to_send { read | EventFlags::OUT } else { read }
}

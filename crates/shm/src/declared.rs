//! Metrics that are declared when the program is written: `static`s, registered when they are used for the first time.

use std::marker::PhantomData;
use std::ops::Deref;

use crate::counter::{Counter, UpDown};
use crate::entry::{Series, sizes};
use crate::error::{Error, Result};
use crate::gauge::{FloatGauge, Gauge};
use crate::heartbeat::Heartbeat;
use crate::here;
use crate::histogram::Histogram;
use crate::in_flight::InFlight;
use crate::metric::{Cells, Metric, NOWHERE, UNKNOWN};
use crate::shown::Role;
use crate::text::Text;
use crate::writer::Writer;

/// What a declared metric may be linked to.
pub trait Declared: Sync {
    /// Registers it if need be; its cells.
    #[doc(hidden)]
    fn declared_cells(&self) -> u64;
}

/// What is declared of a metric.
#[derive(Clone, Copy)]
struct Declaration {
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    role: Role,
    tags: &'static [&'static str],
    every_ns: u64,
    link: Option<&'static dyn Declared>,
}

impl Declaration {
    const fn new(name: &'static str) -> Declaration {
        let (unit, help, role) = ("", "", Role::Other);
        Declaration { name, unit, help, role, tags: &[], every_ns: 0, link: None }
    }

    fn series(&self, kind: u64) -> Series {
        Series {
            kind,
            name: self.name.to_owned(),
            unit: self.unit.to_owned(),
            help: self.help.trim().to_owned(),
            role: self.role,
            tags: self.tags.iter().map(|&tag| tag.to_owned()).collect(),
            parameter: self.every_ns,
            link: self.link.map(Declared::declared_cells),
            labels: Vec::new(),
        }
    }
}

/// Registers at first use; where that fails for good, what is recorded goes nowhere, and the header counts it.
fn registered(cells: &Cells, register: impl FnOnce(&Writer) -> Result<u64>) {
    if here::is_full() {
        return;
    }
    let writer = match here::open() {
        Ok(writer) => writer,
        Err(Error::Off) => return cells.set(NOWHERE),
        Err(_) => return,
    };
    match register(writer) {
        Ok(found) => {
            here::extend_shared(writer);
            cells.set(found);
        }
        // There may be room later.
        Err(error @ (Error::Room { .. } | Error::Io { .. })) => _ = here::noted::<()>(Err(error)),
        Err(_) => cells.set(NOWHERE),
    }
}

macro_rules! declare {
    ($($(#[$doc:meta])* $method:ident($value:ident: $type:ty);)*) => {
        $($(#[$doc])*
        pub const fn $method(mut self, $value: $type) -> Self {
            self.declaration.$method = $value;
            self
        })*
    };
}

/// A metric that a program declares as a `static`: registered when it is used for the first time. [`crate::metrics!`] writes it.
pub struct Static<M> {
    metric: M,
    declaration: Declaration,
}

macro_rules! statics {
    ($($metric:ident),*) => {
        $(impl Static<$metric> {
            /// A metric of a name.
            pub const fn new(name: &'static str) -> Static<$metric> {
                let metric = $metric { cells: Cells::unknown() };
                Static { metric, declaration: Declaration::new(name) }
            }

            declare! {
                /// What it is measured in, as UCUM writes it.
                unit(unit: &'static str);
                /// What it means.
                help(help: &'static str);
                /// What it is to the program.
                role(role: Role);
                /// Names of the tags of operations in flight.
                tags(tags: &'static [&'static str]);
                /// How often a heartbeat means to come: nanoseconds.
                every_ns(every_ns: u64);
            }

            /// What its role refers to.
            pub const fn link(mut self, to: &'static dyn Declared) -> Self {
                self.declaration.link = Some(to);
                self
            }
        })*
    };
}

statics!(Counter, UpDown, Gauge, FloatGauge, Text, Histogram, InFlight, Heartbeat);

impl<M: Metric> Static<M> {
    #[cold]
    fn register(&self) {
        registered(self.metric.cells(), |writer| {
            writer.register(&self.declaration.series(M::KIND))
        });
    }
}

impl<M: Metric> Deref for Static<M> {
    type Target = M;

    #[inline(always)]
    fn deref(&self) -> &M {
        if self.metric.cells().get() == UNKNOWN {
            self.register();
        }
        &self.metric
    }
}

impl<M: Metric + Sync> Declared for Static<M> {
    fn declared_cells(&self) -> u64 {
        self.cells().get()
    }
}

/// Values of a label that are known when the program is compiled. [`crate::label!`] writes it.
pub trait Label: Copy {
    /// The label's name.
    const NAME: &'static str;
    /// Its values.
    const VALUES: &'static [&'static str];

    /// Which of the values it is: below their number.
    fn index(self) -> usize;
}

/// Metrics of one name, one for each value of a label: found by multiplication, not by looking up. [`crate::metrics!`] writes it.
pub struct Labelled<M, L> {
    first: Cells,
    declaration: Declaration,
    of: PhantomData<fn(L) -> M>,
}

impl<M: Metric, L: Label> Labelled<M, L> {
    /// Metrics of a name.
    pub const fn new(name: &'static str) -> Labelled<M, L> {
        let declaration = Declaration::new(name);
        Labelled { first: Cells::unknown(), declaration, of: PhantomData }
    }

    declare! {
        /// What they are measured in, as UCUM writes it.
        unit(unit: &'static str);
        /// What they mean.
        help(help: &'static str);
        /// What they are to the program.
        role(role: Role);
        /// Names of the tags of operations in flight.
        tags(tags: &'static [&'static str]);
    }

    /// The metric of one value.
    #[inline(always)]
    pub fn of(&self, label: L) -> M {
        let mut first = self.first.get();
        if first >= NOWHERE {
            first = self.register();
            if first >= NOWHERE {
                return M::at(Cells::at(first));
            }
        }
        let index = label.index();
        assert!(index < L::VALUES.len(), "a label's index is beyond its values");
        let (small, _, large) = const { sizes_of::<M>() };
        M::at(Cells::at(first + (index as u64) * (small as u64 | (large as u64) << 32)))
    }

    #[cold]
    fn register(&self) -> u64 {
        if self.first.get() == UNKNOWN {
            registered(&self.first, |writer| {
                writer.register_family(&self.declaration.series(M::KIND), L::NAME, L::VALUES)
            });
        }
        self.first.get()
    }
}

const fn sizes_of<M: Metric>() -> (usize, usize, usize) {
    match sizes(M::KIND) {
        Some(sizes) => sizes,
        None => panic!("BUG: an unknown kind"),
    }
}

/// Declares metrics as `static`s; what the comment says is their help.
///
/// ```
/// shm::label! {
///     /// Where requests go.
///     pub enum Route as "route" { Home = "home", Search = "search" }
/// }
/// shm::metrics! {
///     /// Requests that were answered.
///     pub static ANSWERED: shm::Counter = "answered_total";
///     /// How long an answer took.
///     pub static TOOK: shm::Histogram[Route] = "answer_duration", unit "ns";
/// }
///
/// let timer = TOOK.of(Route::Search).start();
/// ANSWERED.add(1);
/// drop(timer);
/// ```
#[macro_export]
macro_rules! metrics {
    () => {};
    ($(#[doc = $help:literal])* $vis:vis static $name:ident: $metric:ty = $text:literal $(, $what:ident $value:expr)*; $($rest:tt)*) => {
        $(#[doc = $help])*
        $vis static $name: $crate::Static<$metric> =
            $crate::Static::<$metric>::new($text).help(concat!("", $($help),*))$(.$what($value))*;
        $crate::metrics!($($rest)*);
    };
    ($(#[doc = $help:literal])* $vis:vis static $name:ident: $metric:path [$label:ty] = $text:literal $(, $what:ident $value:expr)*; $($rest:tt)*) => {
        $(#[doc = $help])*
        $vis static $name: $crate::Labelled<$metric, $label> =
            $crate::Labelled::<$metric, $label>::new($text).help(concat!("", $($help),*))$(.$what($value))*;
        $crate::metrics!($($rest)*);
    };
}

/// Declares a label: an `enum` whose variants are its values.
#[macro_export]
macro_rules! label {
    ($(#[$meta:meta])* $vis:vis enum $name:ident as $label:literal { $($(#[$variant_meta:meta])* $variant:ident = $value:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name {
            $($(#[$variant_meta])* #[doc = $value] $variant),+
        }

        impl $crate::Label for $name {
            const NAME: &'static str = $label;
            const VALUES: &'static [&'static str] = &[$($value),+];

            #[inline(always)]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

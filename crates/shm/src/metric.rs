//! What metrics have in common: where their cells are, what describes them, and how a program declares them.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::counter::{Counter, UpDown};
use crate::entry::{Series, sizes};
use crate::error::{Error, Result};
use crate::gauge::{FloatGauge, Gauge};
use crate::heartbeat::Heartbeat;
use crate::here;
use crate::histogram::Histogram;
use crate::in_flight::InFlight;
use crate::layout::kind;
use crate::shown::Role;
use crate::text::Text;

/// A kind of metric. There are no others than those of this crate.
pub trait Metric: sealed::Sealed {}

pub(crate) mod sealed {
    use super::Cells;

    pub trait Sealed: Sized {
        const KIND: u64;
        fn at(cells: Cells) -> Self;
        fn cells(&self) -> &Cells;
    }
}

/// Where the cells of a metric lie in each lane, known once it is registered.
#[derive(Debug)]
pub struct Cells(AtomicU64);

/// Not registered yet.
const UNKNOWN: u64 = u64::MAX;
/// There is no room for it, or it is no metric: what is recorded goes nowhere.
const NOWHERE: u64 = u64::MAX - 1;

impl Cells {
    const fn unknown() -> Cells {
        Cells(AtomicU64::new(UNKNOWN))
    }

    pub(crate) fn at(cells: u64) -> Cells {
        Cells(AtomicU64::new(cells))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Where the small ones are; beyond every lane for what is not registered.
    #[inline(always)]
    pub(crate) fn small(&self) -> usize {
        self.get() as u32 as usize
    }

    /// Where both are.
    #[inline(always)]
    pub(crate) fn both(&self) -> (usize, usize) {
        let cells = self.get();
        (cells as u32 as usize, (cells >> 32) as usize)
    }
}

impl Clone for Cells {
    fn clone(&self) -> Cells {
        Cells::at(self.get())
    }
}

macro_rules! kinds {
    ($($metric:ident $kind:ident),*) => {
        $(
            impl sealed::Sealed for $metric {
                const KIND: u64 = kind::$kind;

                #[inline(always)]
                fn at(cells: Cells) -> $metric {
                    $metric { cells }
                }

                #[inline(always)]
                fn cells(&self) -> &Cells {
                    &self.cells
                }
            }
            impl Metric for $metric {}
        )*
    };
}

kinds!(
    Counter COUNTER, UpDown UP_DOWN, Gauge GAUGE, FloatGauge FLOAT_GAUGE, Text TEXT, Histogram HISTOGRAM,
    InFlight IN_FLIGHT, Heartbeat HEARTBEAT
);

/// A metric to be, while the program runs. What is known beforehand is better declared with [`crate::metrics!`].
///
/// ```
/// let answered = shm::Description::new("answered_total").label("peer", "a").help("Answers.").counter()?;
/// answered.add(1);
/// # Ok::<(), shm::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Description {
    pub(crate) series: Series,
}

impl Description {
    /// A metric of a name, 4,096 bytes at the most.
    pub fn new(name: impl Into<String>) -> Description {
        Description { series: Series { name: name.into(), ..Series::default() } }
    }

    /// What it is measured in, as UCUM writes it: "ns", "By", "1".
    pub fn unit(mut self, unit: impl Into<String>) -> Description {
        self.series.unit = unit.into();
        self
    }

    /// What it means.
    pub fn help(mut self, help: impl Into<String>) -> Description {
        self.series.help = help.into();
        self
    }

    /// One more label.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Description {
        self.series.labels.push((name.into(), value.into()));
        self.series.labels.sort();
        self
    }

    /// What it is to the program.
    pub fn role(mut self, role: Role) -> Description {
        self.series.role = role;
        self
    }

    /// What its role refers to: the capacity of what is used, the size of what is hit.
    pub fn linked_to(mut self, metric: &impl Metric) -> Description {
        self.series.link = Some(metric.cells().get());
        self
    }

    /// How often something happened.
    pub fn counter(self) -> Result<Counter> {
        self.register()
    }

    /// How much there is, told by what comes and goes.
    pub fn up_down(self) -> Result<UpDown> {
        self.register()
    }

    /// How much there is, a whole number.
    pub fn gauge(self) -> Result<Gauge> {
        self.register()
    }

    /// How much there is.
    pub fn float_gauge(self) -> Result<FloatGauge> {
        self.register()
    }

    /// A text.
    pub fn text(self) -> Result<Text> {
        self.register()
    }

    /// How values are distributed.
    pub fn histogram(self) -> Result<Histogram> {
        self.register()
    }

    /// What has begun and has not ended, with the names of up to four tags.
    pub fn in_flight(mut self, tags: &[&str]) -> Result<InFlight> {
        self.series.tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        self.register()
    }

    /// A sign of life that means to come every so many nanoseconds; 0 if it does not say.
    pub fn heartbeat(mut self, every_ns: u64) -> Result<Heartbeat> {
        self.series.parameter = every_ns;
        self.register()
    }

    fn register<M: Metric>(mut self) -> Result<M> {
        self.series.kind = M::KIND;
        let writer = here::open()?;
        let cells = writer.register(&self.series)?;
        here::extend_shared(writer);
        Ok(M::at(Cells::at(cells)))
    }
}

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
fn registered(cells: &Cells, register: impl FnOnce(&crate::writer::Writer) -> Result<u64>) {
    if here::is_full() {
        return;
    }
    let writer = match here::open() {
        Ok(writer) => writer,
        Err(Error::Off) => return cells.0.store(NOWHERE, Ordering::Relaxed),
        Err(_) => return,
    };
    match register(writer) {
        Ok(found) => {
            here::extend_shared(writer);
            cells.0.store(found, Ordering::Relaxed);
        }
        // There may be room later.
        Err(error @ (Error::Room { .. } | Error::Io { .. })) => _ = here::noted::<()>(Err(error)),
        Err(_) => cells.0.store(NOWHERE, Ordering::Relaxed),
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

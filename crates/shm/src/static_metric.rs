//! Metrics declared as `static`s, registered at first use.

use std::marker::PhantomData;
use std::ops::Deref;

use crate::counter::{Counter, UpDownCounter};
use crate::entry::{SeriesDefinition, sizes};
use crate::error::{Error, Result};
use crate::gauge::{FloatGauge, Gauge};
use crate::heartbeat::Heartbeat;
use crate::histogram::Histogram;
use crate::in_flight::InFlight;
use crate::metric::{CellLocation, MetricHandle, NOWHERE, UNKNOWN};
use crate::metric_snapshot::MetricRole;
use crate::text::TextMetric;
use crate::thread_lane;
use crate::writer::MetricsFileWriter;

/// Metric that another may refer to.
pub trait LinkTarget: Sync {
    /// Registers the metric if needed and returns its cells.
    #[doc(hidden)]
    fn link_cells(&self) -> u64;
}

/// Descriptor of a static metric.
#[derive(Clone, Copy)]
struct StaticDescriptor {
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    role: MetricRole,
    tags: &'static [&'static str],
    every_ns: u64,
    related_metric: Option<&'static dyn LinkTarget>,
}

impl StaticDescriptor {
    const fn new(name: &'static str) -> StaticDescriptor {
        let (unit, help, role) = ("", "", MetricRole::Other);
        StaticDescriptor { name, unit, help, role, tags: &[], every_ns: 0, related_metric: None }
    }

    fn series(&self, kind: u64) -> SeriesDefinition {
        SeriesDefinition {
            kind,
            name: self.name.to_owned(),
            unit: self.unit.to_owned(),
            help: self.help.trim().to_owned(),
            role: self.role,
            tags: self.tags.iter().map(|&tag| tag.to_owned()).collect(),
            parameter: self.every_ns,
            related_cells: self.related_metric.map(LinkTarget::link_cells),
            labels: Vec::new(),
        }
    }
}

/// Registers at first use; after a permanent failure records are dropped, and the header counts it.
fn register_once(cells: &CellLocation, register: impl FnOnce(&MetricsFileWriter) -> Result<u64>) {
    if thread_lane::is_full() {
        return;
    }
    let writer = match thread_lane::open() {
        Ok(writer) => writer,
        Err(Error::Disabled) => return cells.set(NOWHERE),
        Err(_) => return,
    };
    match register(writer) {
        Ok(found) => {
            thread_lane::extend_shared(writer);
            cells.set(found);
        }
        // There may be space later.
        Err(error @ (Error::NoSpace { .. } | Error::Io { .. })) => {
            _ = thread_lane::record_failure::<()>(Err(error))
        }
        Err(_) => cells.set(NOWHERE),
    }
}

macro_rules! declare {
    ($($(#[$doc:meta])* $method:ident($value:ident: $type:ty);)*) => {
        $($(#[$doc])*
        pub const fn $method(mut self, $value: $type) -> Self {
            self.descriptor.$method = $value;
            self
        })*
    };
}

/// Metric declared as a `static` and registered at first use. [`crate::metrics!`] declares it.
pub struct StaticMetric<M> {
    metric: M,
    descriptor: StaticDescriptor,
}

macro_rules! statics {
    ($($metric:ident),*) => {
        $(impl StaticMetric<$metric> {
            /// A metric with a name.
            pub const fn new(name: &'static str) -> StaticMetric<$metric> {
                let metric = $metric { cells: CellLocation::unknown() };
                StaticMetric { metric, descriptor: StaticDescriptor::new(name) }
            }

            declare! {
                /// Unit in UCUM.
                unit(unit: &'static str);
                /// Help text.
                help(help: &'static str);
                /// Role of the metric.
                role(role: MetricRole);
                /// Names of the tags of in-flight operations.
                tags(tags: &'static [&'static str]);
                /// Intended period of a heartbeat in nanoseconds.
                every_ns(every_ns: u64);
            }

            /// Related metric of the role.
            pub const fn link(mut self, to: &'static dyn LinkTarget) -> Self {
                self.descriptor.related_metric = Some(to);
                self
            }
        })*
    };
}

statics!(Counter, UpDownCounter, Gauge, FloatGauge, TextMetric, Histogram, InFlight, Heartbeat);

impl<M: MetricHandle> StaticMetric<M> {
    #[cold]
    fn register(&self) {
        register_once(self.metric.cells(), |writer| {
            writer.register(&self.descriptor.series(M::KIND))
        });
    }
}

impl<M: MetricHandle> Deref for StaticMetric<M> {
    type Target = M;

    #[inline(always)]
    fn deref(&self) -> &M {
        if self.metric.cells().get() == UNKNOWN {
            self.register();
        }
        &self.metric
    }
}

impl<M: MetricHandle + Sync> LinkTarget for StaticMetric<M> {
    fn link_cells(&self) -> u64 {
        self.cells().get()
    }
}

/// Label with values known at compile time. [`crate::label!`] declares it.
pub trait LabelValues: Copy {
    /// Name of the label.
    const NAME: &'static str;
    /// Values of the label.
    const VALUES: &'static [&'static str];

    /// Index of the value, below their number.
    fn index(self) -> usize;
}

/// Metrics of one name, one per label value, indexed by multiplication. [`crate::metrics!`]
/// declares them.
pub struct LabelledMetrics<M, L> {
    first: CellLocation,
    descriptor: StaticDescriptor,
    marker: PhantomData<fn(L) -> M>,
}

impl<M: MetricHandle, L: LabelValues> LabelledMetrics<M, L> {
    /// Metrics with a name.
    pub const fn new(name: &'static str) -> LabelledMetrics<M, L> {
        let declaration = StaticDescriptor::new(name);
        LabelledMetrics {
            first: CellLocation::unknown(),
            descriptor: declaration,
            marker: PhantomData,
        }
    }

    declare! {
        /// Unit in UCUM.
        unit(unit: &'static str);
        /// Help text.
        help(help: &'static str);
        /// Role of the metrics.
        role(role: MetricRole);
        /// Names of the tags of in-flight operations.
        tags(tags: &'static [&'static str]);
    }

    /// Metric of one value.
    #[inline(always)]
    pub fn with_label(&self, label: L) -> M {
        let mut first = self.first.get();
        if first >= NOWHERE {
            first = self.register();
            if first >= NOWHERE {
                return M::at(CellLocation::at(first));
            }
        }
        let index = label.index();
        assert!(index < L::VALUES.len(), "a label's index is beyond its values");
        let (small, _, large) = const { cell_sizes::<M>() };
        M::at(CellLocation::at(first + (index as u64) * (small as u64 | (large as u64) << 32)))
    }

    #[cold]
    fn register(&self) -> u64 {
        if self.first.get() == UNKNOWN {
            register_once(&self.first, |writer| {
                writer.register_family(&self.descriptor.series(M::KIND), L::NAME, L::VALUES)
            });
        }
        self.first.get()
    }
}

const fn cell_sizes<M: MetricHandle>() -> (usize, usize, usize) {
    match sizes(M::KIND) {
        Some(sizes) => sizes,
        None => panic!("BUG: an unknown kind"),
    }
}

/// Declares metrics as `static`s; their doc comment is their help text.
///
/// ```
/// shm::label! {
///     /// Target of requests.
///     pub enum Route as "route" { Home = "home", Search = "search" }
/// }
/// shm::metrics! {
///     /// Answered requests.
///     pub static ANSWERED: shm::Counter = "answered_total";
///     /// Response time.
///     pub static TOOK: shm::Histogram[Route] = "answer_duration", unit "ns";
/// }
///
/// let timer = TOOK.with_label(Route::Search).start();
/// ANSWERED.add(1);
/// drop(timer);
/// ```
#[macro_export]
macro_rules! metrics {
    () => {};
    ($(#[doc = $help:literal])* $vis:vis static $name:ident: $metric:ty = $text:literal $(, $what:ident $value:expr)*; $($rest:tt)*) => {
        $(#[doc = $help])*
        $vis static $name: $crate::StaticMetric<$metric> =
            $crate::StaticMetric::<$metric>::new($text).help(concat!("", $($help),*))$(.$what($value))*;
        $crate::metrics!($($rest)*);
    };
    ($(#[doc = $help:literal])* $vis:vis static $name:ident: $metric:path [$label:ty] = $text:literal $(, $what:ident $value:expr)*; $($rest:tt)*) => {
        $(#[doc = $help])*
        $vis static $name: $crate::LabelledMetrics<$metric, $label> =
            $crate::LabelledMetrics::<$metric, $label>::new($text).help(concat!("", $($help),*))$(.$what($value))*;
        $crate::metrics!($($rest)*);
    };
}

/// Declares a label: an `enum` with its values as variants.
#[macro_export]
macro_rules! label {
    ($(#[$meta:meta])* $vis:vis enum $name:ident as $label:literal { $($(#[$variant_meta:meta])* $variant:ident = $value:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name {
            $($(#[$variant_meta])* #[doc = $value] $variant),+
        }

        impl $crate::LabelValues for $name {
            const NAME: &'static str = $label;
            const VALUES: &'static [&'static str] = &[$($value),+];

            #[inline(always)]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

//! The thread that notices which series vanished and which appeared, and stores what changed.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use decode::SeriesSink as _;
use intake::{EventCounter, Intake, LogFn, LogLevel, Meter, SeriesKeyEncoding};
use model::{Sample, Selector, Series, SeriesId, SeriesKind, selector};
use rules::{
    ChangeAcceptance, MatchedChange, ObservedSeries, SeriesEvent, SeriesInventory, SeriesSetChange,
    StoredInventory, encode_inventory, match_changes,
};
use store::{ReadView, SelectedSeries, Store};

use crate::inventory_store::InventoryStore;
use crate::missing_series::{ACCEPTED_BY, ACCEPTED_NOTE, MissingSeries};
use crate::sample_writer::RULES_PRODUCER;
use crate::series_change_alerts::{ChangeSeverity, FIRING_MAX, SeriesChangeAlerts};
use crate::target_health::TargetHealth;

/// Time between two polls.
const POLL: Duration = Duration::from_secs(15);
/// How long a new series can be in the place of one that vanished: that one is noticed after five
/// of its intervals.
const APPEARED_RETENTION_NS: i64 = 3600 * 1_000_000_000;
/// Polls after which the inventory is stored: 5 minutes.
const STORED_POLLS: u32 = 20;
/// Polls after which changes are stored although more series vanish.
const GATHERING_POLLS_MAX: u32 = 8;
/// Series of each list that are held.
const SERIES_MAX: usize = 10_000;
/// Changes that are stored at a time.
const CHANGES_MAX: usize = 20;
/// How long a change counts as open, and its alert fires.
const OPEN_NS: i64 = 7 * 86_400 * 1_000_000_000;
/// Name of the producer of changes.
const PRODUCER: &str = "changes";
/// Prefix of own metrics: they come and go with settings.
const OWN_PREFIX: &str = "topdeck_";

/// Stops the thread.
#[derive(Debug, Default)]
pub(crate) struct WatchControl {
    is_stopping: Mutex<bool>,
    wake: Condvar,
    /// Changes of the last seven days that nobody accepted.
    open: AtomicU64,
    pub(crate) severity: ChangeSeverity,
}

impl WatchControl {
    pub(crate) fn stop(&self) {
        *self.is_stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.is_stopping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, time: Duration) {
        let stopping = self.is_stopping.lock().unwrap_or_else(PoisonError::into_inner);
        // The loop sees the reason.
        drop(self.wake.wait_timeout_while(stopping, time, |is_stopping| !*is_stopping));
    }

    pub(crate) fn register_metrics(self: &Arc<WatchControl>, meter: &Meter) {
        let own = Arc::clone(self);
        let about = "Changes of series in the last seven days that nobody accepted";
        meter.gauge("topdeck_series_changes_open", about, &[], move || {
            // Relaxed: a number to be shown.
            own.open.load(Ordering::Relaxed) as f64
        });
    }
}

/// What the watcher works with.
pub(crate) struct WatcherDependencies {
    pub(crate) intake: Arc<Intake>,
    pub(crate) store: Arc<Store>,
    pub(crate) control: Arc<WatchControl>,
    pub(crate) file: InventoryStore,
    pub(crate) alerts: SeriesChangeAlerts,
    pub(crate) log: LogFn,
}

/// Watches series.
pub(crate) struct SeriesWatcher {
    intake: Arc<Intake>,
    store: Arc<Store>,
    control: Arc<WatchControl>,
    file: InventoryStore,
    alerts: SeriesChangeAlerts,
    log: LogFn,
    inventory: SeriesInventory,
    is_loaded: bool,
    /// Polls since the inventory was stored.
    unstored_polls: u32,
    /// New series by time, without those that vanished.
    appeared: VecDeque<ObservedSeries>,
    /// Series that vanished in the polls before: others of the same cause may follow.
    vanished: Vec<ObservedSeries>,
    /// Series of targets that are down: they vanish if the target returns without them.
    down: Vec<ObservedSeries>,
    /// Series of changes that are stored and open.
    missing: MissingSeries,
    /// Polls since the first of them vanished.
    gathering_polls: u32,
    dropped: EventCounter,
}

impl SeriesWatcher {
    pub(crate) fn new(dependencies: WatcherDependencies) -> SeriesWatcher {
        let WatcherDependencies { intake, store, control, file, alerts, log } = dependencies;
        let dropped = intake.meter().counter(
            "topdeck_series_changes_dropped_total",
            "Series, changes of series and alerts of changes that were not stored, because there \
             were too many or the store was not available",
            &[],
        );
        SeriesWatcher {
            intake,
            store,
            control,
            file,
            alerts,
            log,
            inventory: SeriesInventory::default(),
            is_loaded: false,
            unstored_polls: 0,
            appeared: VecDeque::new(),
            vanished: Vec::new(),
            down: Vec::new(),
            missing: MissingSeries::default(),
            gathering_polls: 0,
            dropped,
        }
    }

    /// Polls until stopped.
    pub(crate) fn run(&mut self) {
        while !self.control.is_stopping() {
            if let Err(error) = self.poll() {
                (self.log)(LogLevel::Error, &format!("cannot look for changed series: {error}"));
            }
            self.control.wait(POLL);
        }
        self.store_inventory();
    }

    /// Goes on with the inventory of before a restart.
    fn load(&mut self, view: &ReadView) -> store::Result<()> {
        let stored = self.file.read().unwrap_or_else(|cause| {
            (self.log)(LogLevel::Error, &format!("{cause}; all series are learned anew"));
            None
        });
        if let Some(stored) = stored {
            self.restore(view, &stored)?;
        }
        self.is_loaded = true;
        Ok(())
    }

    fn restore(&mut self, view: &ReadView, stored: &StoredInventory) -> store::Result<()> {
        let mut inventory = SeriesInventory::default();
        inventory.resume(stored);
        let mut appeared = Vec::new();
        // By source and end.
        let mut silent: HashMap<(Option<u64>, i64), Vec<SeriesId>> = HashMap::new();
        // No row is looked for.
        view.each_activity(&|_| i64::MAX, &mut |activity| {
            let (id, position, producer) =
                (activity.series.id(), activity.position, activity.producer);
            if !inventory.restore(position, id, stored) {
                return;
            }
            if !inventory.is_active(position) {
                silent.entry((producer, inventory.known_end(position))).or_default().push(id);
            }
            if let Some(time_ns) = stored.appeared_ns(id) {
                appeared.push((time_ns, activity.series, producer));
            }
        })?;
        model::sort::by_key(&mut appeared, |(time_ns, ..)| *time_ns);
        self.inventory = inventory;
        for (time_ns, series, producer) in appeared {
            let source = self.source_name(producer);
            let Some(entry) = view.entry(&series) else { continue };
            let observed = ObservedSeries { source, series: (*entry.series).clone(), time_ns };
            self.appeared.push_back(observed);
        }
        self.restore_missing(view, silent)
    }

    /// Series of open changes. Which ones they are is not stored: those of the source that sent
    /// last at the time of the change. Of series that did not fall silent at once, these are the
    /// last ones.
    fn restore_missing(
        &mut self,
        view: &ReadView,
        silent: HashMap<(Option<u64>, i64), Vec<SeriesId>>,
    ) -> store::Result<()> {
        let since_ns = self.intake.now().saturating_sub(OPEN_NS);
        let changes = rules::read_changes(view, since_ns..i64::MAX)?;
        let open: HashMap<(&str, i64), &SeriesSetChange> = changes
            .iter()
            .filter(|change| change.acceptance.is_none())
            .map(|change| ((change.source.as_str(), change.time_ns), change))
            .collect();
        for ((producer, end_ns), series) in silent {
            if let Some(change) = open.get(&(self.source_name(producer).as_str(), end_ns)) {
                self.missing.add(change.id(), series);
            }
        }
        Ok(())
    }

    /// Stores the inventory, unless there are series that vanished and are in no change yet: after
    /// a kill they must be found again.
    fn store_inventory(&mut self) {
        if !self.vanished.is_empty() {
            return;
        }
        if let Err(cause) = self.write_inventory() {
            let lost = "what changes while the server is down may not be told";
            (self.log)(
                LogLevel::Error,
                &format!("cannot store the inventory of series: {cause}; {lost}"),
            );
        }
        self.unstored_polls = 0;
    }

    fn write_inventory(&self) -> Result<(), String> {
        let view = self.store.view().map_err(|error| error.to_string())?;
        let mut series = Vec::new();
        let outcome = view.each_activity(&|_| i64::MAX, &mut |activity| {
            series.push((activity.position, activity.series.id()));
        });
        outcome.map_err(|error| error.to_string())?;
        let appeared: HashMap<SeriesId, i64> =
            self.appeared.iter().map(|new| (new.series.id(), new.time_ns)).collect();
        match encode_inventory(&self.inventory, &series, &appeared) {
            Some(bytes) => self.file.write(&bytes),
            None => Ok(()),
        }
    }

    /// Looks at all series once.
    pub(crate) fn poll(&mut self) -> store::Result<()> {
        // Batches are rejected: no series arrives, and none is gone. The next poll counts the pause
        // as no silence.
        if self.intake.space_problem().is_some() {
            return Ok(());
        }
        let control = Arc::clone(&self.control);
        let view = self.store.view()?.with_cancellation(Arc::new(move || control.is_stopping()));
        if !self.is_loaded {
            self.load(&view)?;
        }
        let now_ns = self.intake.now();
        self.inventory.begin_poll(now_ns);
        let mut events: Vec<(SelectedSeries, Option<u64>, SeriesEvent)> = Vec::new();
        let inventory = std::cell::RefCell::new(std::mem::take(&mut self.inventory));
        let mut more = 0;
        let outcome = view.each_activity(
            &|position| inventory.borrow().known_end(position),
            &mut |activity| {
                let event = inventory.borrow_mut().record(activity.position, activity.newer_end);
                match event {
                    Some(event) if events.len() < SERIES_MAX => {
                        events.push((activity.series, activity.producer, event));
                    }
                    Some(_) => more += 1,
                    None => {}
                }
            },
        );
        self.inventory = inventory.into_inner();
        self.dropped.add(more);
        let is_first = self.vanished.is_empty();
        // Also if the poll fails: they are found once.
        let mut has_more = self.add(&view, &events, now_ns);
        outcome?;
        self.inventory.end_poll();
        has_more |= self.separate_down(&view, now_ns)?;
        self.gathering_polls = if is_first { 0 } else { self.gathering_polls + 1 };
        let is_complete = !has_more || self.gathering_polls >= GATHERING_POLLS_MAX;
        self.unstored_polls += 1;
        if !self.vanished.is_empty() && is_complete {
            self.store_changes(&view, now_ns);
            self.store_inventory();
        } else if self.unstored_polls >= STORED_POLLS {
            self.store_inventory();
        }
        self.read_acceptances(now_ns)
    }

    /// Counts open changes, and ends the alerts of those that are accepted.
    fn read_acceptances(&mut self, now_ns: i64) -> store::Result<()> {
        let open_since_ns = now_ns.saturating_sub(OPEN_NS);
        // An alert may be of an earlier change: it fires from when that was noticed.
        let earliest_ns = self.alerts.earliest_ns().unwrap_or(open_since_ns);
        let since_ns = earliest_ns.min(open_since_ns).saturating_sub(1);
        // A later view: series that sent again may have accepted a change in this poll.
        let recent = rules::read_changes(&self.store.view()?, since_ns..i64::MAX)?;
        let is_open = |change: &&SeriesSetChange| {
            change.acceptance.is_none() && change.time_ns >= open_since_ns
        };
        let open = recent.iter().filter(is_open).count();
        self.control.open.store(open as u64, Ordering::Relaxed);
        let accepted = recent.iter().filter(|change| change.acceptance.is_some());
        let accepted: HashSet<String> = accepted.map(SeriesSetChange::id).collect();
        self.missing.forget(|id| accepted.contains(id));
        if let Err(error) = self.alerts.end_accepted(&recent, now_ns) {
            let what = "cannot end the alerts of accepted changes of series";
            (self.log)(LogLevel::Error, &format!("{what}: {error}"));
        }
        Ok(())
    }

    /// Adds what a poll found. Returns whether series vanished.
    fn add(
        &mut self,
        view: &ReadView,
        events: &[(SelectedSeries, Option<u64>, SeriesEvent)],
        now_ns: i64,
    ) -> bool {
        let mut names: BTreeMap<Option<u64>, String> = BTreeMap::new();
        let mut markers = MarkerSeries::default();
        let (mut returned, mut vanished) = (HashSet::new(), HashSet::new());
        for (series, producer, event) in events {
            let source = names.entry(*producer).or_insert_with(|| self.source_name(*producer));
            let Some(entry) = view.entry(series) else { continue };
            let is_left_out =
                source == RULES_PRODUCER || entry.series.name().starts_with(OWN_PREFIX);
            if is_left_out || markers.contains(view, &entry.series) {
                continue;
            }
            let (source, id) = (source.clone(), series.id());
            let series = (*entry.series).clone();
            let observed = |time_ns| ObservedSeries { source, series, time_ns };
            match event {
                SeriesEvent::Appeared => self.appeared.push_back(observed(now_ns)),
                SeriesEvent::Returned => _ = returned.insert(id),
                SeriesEvent::Vanished { end_ns } => {
                    vanished.insert(id);
                    self.vanished.push(observed(*end_ns));
                }
            }
        }
        if !vanished.is_empty() {
            // Such a series is in the place of none, least of all in its own.
            self.appeared.retain(|new| !vanished.contains(&new.series.id()));
        }
        if !returned.is_empty() {
            self.end_silence(&returned, now_ns);
        }
        let first_ns = now_ns.saturating_sub(APPEARED_RETENTION_NS);
        let is_held = |observed: &ObservedSeries| observed.time_ns >= first_ns;
        while self.appeared.len() > SERIES_MAX
            || self.appeared.front().is_some_and(|first| !is_held(first))
        {
            self.appeared.pop_front();
        }
        let excess = self.vanished.len().saturating_sub(SERIES_MAX);
        self.vanished.truncate(SERIES_MAX);
        self.dropped.add(excess as u64);
        !vanished.is_empty()
    }

    /// Series that have samples again have not changed: neither they nor what they have been in.
    fn end_silence(&mut self, returned: &HashSet<SeriesId>, now_ns: i64) {
        let is_missing = |old: &ObservedSeries| !returned.contains(&old.series.id());
        self.vanished.retain(is_missing);
        self.down.retain(is_missing);
        for change_id in self.missing.remove(returned) {
            let (by, note) = (ACCEPTED_BY.to_owned(), ACCEPTED_NOTE.to_owned());
            let (series, sample) = ChangeAcceptance { at_ns: now_ns, by, note }.sample(&change_id);
            if let Err(error) = self.append(series, &sample) {
                let what = "cannot store that the series of a change have samples again";
                (self.log)(LogLevel::Error, &format!("{what}: {error}"));
            }
        }
    }

    /// Sets series aside whose targets are down, and takes back those whose targets are not.
    /// Returns whether there are such ones.
    fn separate_down(&mut self, view: &ReadView, now_ns: i64) -> store::Result<bool> {
        let mut health = TargetHealth::new(view, now_ns);
        let (vanished, before) =
            (std::mem::take(&mut self.vanished), std::mem::take(&mut self.down));
        let (mut has_more, mut outcome) = (false, Ok(()));
        let old = vanished.into_iter().map(|old| (old, false));
        for (old, was_down) in old.chain(before.into_iter().map(|old| (old, true))) {
            // A series whose target cannot be read stays where it is.
            let is_down = health.is_down(&old.series).unwrap_or_else(|error| {
                outcome = Err(error);
                was_down
            });
            if is_down {
                self.down.push(old);
            } else {
                has_more |= was_down;
                self.vanished.push(old);
            }
        }
        let excess = self.down.len().saturating_sub(SERIES_MAX);
        self.down.truncate(SERIES_MAX);
        self.dropped.add(excess as u64);
        outcome.map(|()| has_more)
    }

    fn source_name(&self, producer: Option<u64>) -> String {
        let name = producer.and_then(|id| self.intake.producer_name(id));
        name.unwrap_or_else(|| "unknown".to_owned())
    }

    fn store_changes(&mut self, view: &ReadView, now_ns: i64) {
        let vanished = std::mem::take(&mut self.vanished);
        let appeared = self.appeared.make_contiguous();
        let mut others: BTreeMap<&str, bool> = BTreeMap::new();
        for observed in &vanished {
            let name = observed.series.name();
            others.entry(name).or_insert_with(|| has_others(view, &self.inventory, name, appeared));
        }
        let has_others = |name: &str| others.get(name).copied().unwrap_or(false);
        let changes = match_changes(&vanished, appeared, &has_others);
        self.dropped.add(changes.len().saturating_sub(CHANGES_MAX) as u64);
        for MatchedChange { change, vanished } in changes.iter().take(CHANGES_MAX) {
            let (source, text) = (&change.source, &change.text);
            (self.log)(LogLevel::Info, &format!("source {source:?}: {text}"));
            let (series, sample) = change.sample();
            if let Err(error) = self.append(series, &sample) {
                self.dropped.add(1);
                (self.log)(LogLevel::Error, &format!("cannot store a change of series: {error}"));
                continue;
            }
            self.missing.add(change.id(), vanished.iter().copied());
            self.raise(change, now_ns);
        }
    }

    /// Raises the alert of a change. It is open from now on: the series may have vanished long ago,
    /// while the server was down.
    fn raise(&self, change: &SeriesSetChange, now_ns: i64) {
        let (severity, open_until_ns) = (&self.control.severity, now_ns.saturating_add(OPEN_NS));
        let what = "cannot raise the alert of a change of series";
        match self.alerts.raise(change, severity, open_until_ns, now_ns) {
            Ok(true) => {}
            Ok(false) => {
                self.dropped.add(1);
                let cause = format!("limit of {FIRING_MAX} such alerts reached; accept some");
                (self.log)(LogLevel::Warn, &format!("{what}: {cause}"));
            }
            Err(error) => (self.log)(LogLevel::Error, &format!("{what}: {error}")),
        }
    }

    fn append(&self, series: Series, sample: &Sample) -> Result<(), intake::Error> {
        let producer = self.intake.producer(PRODUCER);
        // Nothing may change for months.
        producer.disable_absence_monitor();
        let series = series.validate()?;
        let mut writer = self.intake.writer_for(producer.id(), SeriesKeyEncoding::CANONICAL);
        writer.series(&series.canonical_key(), &mut || Ok(series.clone()))?;
        writer.sample(sample)?;
        self.intake.append(&producer, writer)?.wait_durable()?;
        Ok(())
    }
}

/// Series that have nothing but the staleness markers of histograms, by the name of the metric.
/// They appear when a target stops.
#[derive(Default)]
struct MarkerSeries(BTreeMap<String, HashSet<SeriesId>>);

impl MarkerSeries {
    fn contains(&mut self, view: &ReadView, series: &Series) -> bool {
        if !matches!(series.kind(), SeriesKind::Counter(_) | SeriesKind::Gauge) {
            return false;
        }
        let name = series.name();
        if !self.0.contains_key(name) {
            let all = view.select(&Selector::label_equals(selector::NAME, name));
            let histograms =
                all.iter().filter(|entry| matches!(entry.series.kind(), SeriesKind::Histogram(_)));
            let marker = |series: &Series| decode::staleness::marker_series(series).ok().flatten();
            let markers = histograms.filter_map(|entry| Some(marker(&entry.series)?.id()));
            self.0.insert(name.to_owned(), markers.collect());
        }
        self.0[name].contains(&series.id())
    }
}

/// Whether series of a name are active that did not just appear.
fn has_others(
    view: &ReadView,
    inventory: &SeriesInventory,
    name: &str,
    appeared: &[ObservedSeries],
) -> bool {
    let new = appeared.iter().filter(|observed| observed.series.name() == name).count();
    let all = view.select(&Selector::label_equals(selector::NAME, name));
    let active = all.iter().filter(|entry| inventory.is_active(entry.as_ref().position()));
    active.count() > new
}

#[cfg(test)]
mod tests;

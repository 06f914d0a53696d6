//! Screens as drawn.

use std::path::{Path, PathBuf};

use expect_test::{Expect, expect};
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

use super::*;
use crate::top::app_state::KeyAction;
use crate::top::fixtures::{S, metric, process_sample, recorded, two};

const TIMES: [u64; 5] = [1_200_000, 1_900_000, 48_000_000, 2_300_000, 900_000];
/// 2026-11-14 22:40:00.
const UNIX_NS: i64 = 1_794_696_000 * 1_000_000_000;

/// State after that many samples, a second apart.
fn app_after(looks: u64) -> AppState {
    let mut board = AppState::new(S);
    for at in 1..=looks {
        board.record_samples(two(at, &TIMES), at * S, UNIX_NS + (at * S) as i64, false);
    }
    board
}

#[track_caller]
fn check(board: &AppState, width: u16, height: u16, expected: Expect) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    terminal
        .draw(|frame| draw(board, ColourDepth::None, frame.area(), frame.buffer_mut()))
        .expect("it is drawn");
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(usize::from(width)).map(|cells| {
        cells
            .iter()
            .map(ratatui_core::buffer::Cell::symbol)
            .collect::<String>()
            .trim_end()
            .to_owned()
            + "\n"
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn processes_at_three_widths() {
    let board = app_after(12);
    check(
        &board,
        140,
        8,
        expect![[r#"
            topdeck top   last 1.00 s   2 processes   by rate   2026-11-14 22:40:12Z
            pid  program  metric                  rate▼       p50       p99        max  in flight  errors  p99, last 60 s
            812  shop     answer_duration, all 2   8 /s  1.902 ms  47.82 ms  ~47.82 ms  2, 2.50 s    3 /s                                       ▁▁▁▁▁▁▁▁
             77  worker   job_duration             0 /s         -         -          -          -       -


            answer_duration, all 2: /usr/bin/shop --serve
            q quit  ? help  Enter open  s sort  / filter  space pause  r reverse  + - interval
        "#]],
    );
    check(
        &board,
        80,
        8,
        expect![[r#"
            topdeck top   last 1.00 s   2 processes   by rate   2026-11-14 22:40:12Z
            pid program metric            rate▼      p50      p99       max in flight errors
            812 shop    answer_duration,…  8 /s 1.902 ms 47.82 ms ~47.82 ms 2, 2.50 s   3 /s
             77 worker  job_duration       0 /s        -        -         -         -      -


            answer_duration, all 2: /usr/bin/shop --serve
            q quit  ? help  Enter open  s sort  / filter  space pause  r reverse
        "#]],
    );
    check(
        &board,
        40,
        6,
        expect![[r#"
            topdeck top   last 1.00 s   2 processes
            pid program rate▼      p99       max
            812 shop     8 /s 47.82 ms ~47.82 ms
             77 worker   0 /s        -         -
            answer_duration, all 2: /usr/bin/shop -…
            q quit  ? help  Enter open  s sort
        "#]],
    );
}

#[test]
fn low_screens_keep_rows() {
    let board = app_after(3);
    check(
        &board,
        60,
        4,
        expect![[r#"
            topdeck top   last 1.00 s   2 processes   by rate
            pid program rate▼      p99       max in flight
            812 shop     7 /s 47.73 ms ~47.73 ms 2, 2.50 s
             77 worker   0 /s        -         -         -
        "#]],
    );
    check(
        &board,
        60,
        2,
        expect![[r#"
            pid program rate▼      p99       max in flight
            812 shop     7 /s 47.73 ms ~47.73 ms 2, 2.50 s
        "#]],
    );
    check(
        &board,
        60,
        1,
        expect![[r#"
            812 shop     7 /s 47.73 ms ~47.73 ms 2, 2.50 s
        "#]],
    );
    check(
        &board,
        1,
        1,
        expect![[r#"
        …
    "#]],
    );
}

#[test]
fn one_sample_shows_no_rates() {
    check(
        &app_after(1),
        80,
        7,
        expect![[r#"
        topdeck top   first sample   2 processes   by rate   2026-11-14 22:40:01Z
        pid program metric             rate▼ p50 p99 max in flight errors p99, last 60 s
        812 shop    answer_duration{r…     ?   ?   ?   ?    2, 1 s      ?
         77 worker  job_duration           ?   ?   ?   ?         -      -

        ? first sample: changes need two
        q quit  ? help  Enter open  s sort  / filter  space pause  r reverse
    "#]],
    );
}

#[test]
fn exited_process_is_marked_for_ten_seconds() {
    let mut board = app_after(3);
    let died = |at: u64| {
        let mut looks = two(at, &TIMES);
        looks[0].state = shm::ProcessState::Terminated;
        looks
    };
    board.record_samples(died(4), 4 * S, UNIX_NS, false);
    check(
        &board,
        100,
        7,
        expect![[r#"
            topdeck top   last 1.00 s   2 processes   by rate   2026-11-14 22:40:00Z
            pid  program  metric                   rate▼       p50       p99        max  in flight  errors
            812  shop     terminated, 2 in flight   8 /s  1.902 ms  47.82 ms  ~47.82 ms  2, 2.50 s    3 /s
             77  worker   job_duration              0 /s         -         -          -          -       -

            terminated: last values before the exit
            q quit  ? help  Enter open  s sort  / filter  space pause  r reverse  + - interval
        "#]],
    );
    board.record_samples(Vec::new(), 14 * S, UNIX_NS, false);
    assert_eq!(board.processes.len(), 2);
    board.record_samples(Vec::new(), 15 * S, UNIX_NS, false);
    assert_eq!(board.processes.len(), 1);
}

#[test]
fn late_samples_and_pauses_are_shown() {
    let mut board = app_after(3);
    board.record_samples(two(5, &TIMES), 5 * S, UNIX_NS, false);
    check(
        &board,
        60,
        5,
        expect![[r#"
            topdeck top   LATE: last 2.00 s   2 processes   by rate
            pid program   rate▼      p99       max in flight
            812 shop    7.50 /s 47.86 ms ~47.86 ms 2, 2.50 s
             77 worker     0 /s        -         -         -
            q quit  ? help  Enter open  s sort  / filter  space pause
        "#]],
    );
    board.apply(KeyAction::Pause);
    board.record_samples(two(9, &TIMES), 9 * S, UNIX_NS, true);
    check(
        &board,
        60,
        5,
        expect![[r#"
            topdeck top   PAUSED   last 4.00 s, a pause   2 processes
            pid program   rate▼      p99       max in flight
            812 shop    7.50 /s 47.92 ms ~47.92 ms 2, 2.50 s
             77 worker     0 /s        -         -         -
            q quit  ? help  Enter open  s sort  / filter  space pause
        "#]],
    );
}

#[test]
fn metrics_of_a_process() {
    let mut board = app_after(12);
    board.apply(KeyAction::Open);
    for at in 13..16 {
        board.record_samples(two(at, &TIMES), at * S, UNIX_NS, false);
    }
    check(
        &board,
        120,
        11,
        expect![[r#"
            shop 812   last 1.00 s   topdeck   6 metrics   by metric   2026-11-14 22:40:00Z
            metric▲                               value  rate       p50       p99        max  p99, last 60 s
            answer_duration, all 2           112 values  7 /s  1.896 ms  47.73 ms  ~47.73 ms                               ▁▁▁▁▁▁▁▁▁
            answer_duration{route="cart"}     75 values  5 /s  1.902 ms  47.73 ms  ~47.73 ms                                      ▁▁
            answer_duration{route="search"}   37 values  2 /s  1.207 ms  1.902 ms  ~1.902 ms                                      ▁█
            query_duration                    37 values  2 /s  1.207 ms  1.902 ms  ~1.902 ms                                      ▁█
            answers_failed_total                     45  3 /s
            answers                           2, 2.50 s  0 /s
            cache_bytes                           12 MB

            q back  ? help  Enter histogram  s sort  / filter  space pause  r reverse  + - interval
        "#]],
    );
    check(
        &board,
        60,
        11,
        expect![[r#"
            shop 812   last 1.00 s   topdeck   6 metrics   by metric
            metric▲               value rate      p50      p99       max
            answer_duration… 112 values 7 /s 1.896 ms 47.73 ms ~47.73 ms
            answer_duration…  75 values 5 /s 1.902 ms 47.73 ms ~47.73 ms
            answer_duration…  37 values 2 /s 1.207 ms 1.902 ms ~1.902 ms
            query_duration    37 values 2 /s 1.207 ms 1.902 ms ~1.902 ms
            answers_failed_…         45 3 /s
            answers           2, 2.50 s 0 /s
            cache_bytes           12 MB

            q back  ? help  Enter histogram  s sort  / filter
        "#]],
    );
    (0..5).for_each(|_| board.apply(KeyAction::Move(1)));
    check(
        &board,
        80,
        11,
        expect![[r#"
            shop 812   last 1.00 s   topdeck   6 metrics   by metric   2026-11-14 22:40:00Z
            metric▲                    value rate      p50      p99       max p99, last 60 s
            answer_duration, all… 112 values 7 /s 1.896 ms 47.73 ms ~47.73 ms           ▁▁▁▁
            answer_duration{rout…  75 values 5 /s 1.902 ms 47.73 ms ~47.73 ms              ▁
            answer_duration{rout…  37 values 2 /s 1.207 ms 1.902 ms ~1.902 ms              █
            query_duration         37 values 2 /s 1.207 ms 1.902 ms ~1.902 ms              █
            answers_failed_total          45 3 /s
            answers                2, 2.50 s 0 /s
            cache_bytes                12 MB
            oldest: 2.50 s, number 1, device="sda"
            q back  ? help  Enter histogram  s sort  / filter  space pause  r reverse
        "#]],
    );
}

#[test]
fn a_histogram_in_full() {
    let mut board = app_after(12);
    board.apply(KeyAction::Open);
    board.apply(KeyAction::Open);
    check(
        &board,
        100,
        52,
        expect![[r#"
            shop 812   last 1.00 s   topdeck   2026-11-14 22:40:12Z
            answer_duration, all 2
            window           values     rate       p50       p90       p99     p99.9    p99.99        max
            last 1 s              8     8 /s  1.902 ms  47.82 ms  47.82 ms  47.82 ms  47.82 ms  ~47.82 ms
            last 11 s            83  7.55 /s  1.904 ms  47.73 ms  47.97 ms  47.97 ms  47.97 ms  ~47.97 ms
            since the start      90        -  1.901 ms  47.71 ms  48.00 ms  48.00 ms  48.00 ms      48 ms

            Last minute
              83 values, max 47.82 ms (47.45 to 48.00 ms) in the column from 2026-11-14 22:40:01Z

                      │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
                      │████████········████████········████████········████████········████████········████████
                40 ms ┤
                      │
                30 ms ┤
                      │
                      │
                20 ms ┤
                      │
                      │
                      │
                      │
                10 ms ┤
                 9 ms ┤
                 8 ms ┤
                 7 ms ┤
                 6 ms ┤
                      │
                 5 ms ┤
                 4 ms ┤
                      │
                 3 ms ┤
                      │
                      │████████········████████········████████········████████········████████········████████
                 2 ms ┤
                      │········████████········████████········████████········████████········████████········
                      │
                      │
                      │········████████········████████········████████········████████········████████········
                      │
               900 us ┤████████········████████········████████········████████········████████········████████
                      └────────┬───────────────┬───────────────┬───────────────┬───────────────┬──────────────┬
                           22:40:02        22:40:04        22:40:06        22:40:08        22:40:10    22:40:12
              values per cell  · 1  █ 2+    ▁ maximum
              2026-11-14 22:40:01Z to 2026-11-14 22:40:12Z; column width 1 s

              Distribution, last minute (percentage of values per column; w: another window)
                 20 % ┤█                    █                                                                  █
                      │█                    █                                                                  █
                      │█                    █                                                                  █

            q back  ? help  w window  up down scroll  space pause  + - interval
        "#]],
    );
    board.apply(KeyAction::Last);
    check(
        &board,
        60,
        16,
        expect![[r#"
            shop 812   last 1.00 s   topdeck   2026-11-14 22:40:12Z
            answer_duration, all 2
                 20 % ┤█  ▄     ▄ █                                    █
                      │█  █     █ █                                    █
                      │█  █     █ █                                    █
                      │█  █     █ █                                    █
                 10 % ┤█  █     █ █                                    █
                      │█  █     █ █                                    █
                      │█  █     █ █                                    █
                      │█  █     █ █                                    █
                      │█  █     █ █                                    █
                      └─┬───────┬───────────┬───────┬────────┬──────────
                      1 ms    2 ms        5 ms    10 ms    20 ms
                                ▲ p50                     max 47.97 ms ▲

            q back  ? help  w window  up down scroll  space pause
        "#]],
    );
}

#[test]
fn filter_is_shown_and_cleared() {
    let mut board = app_after(3);
    board.apply(KeyAction::Filter);
    "job".chars().for_each(|c| board.apply(KeyAction::Char(c)));
    check(
        &board,
        80,
        7,
        expect![[r#"
            topdeck top   last 1.00 s   1 of 2 processes   by rate   2026-11-14 22:40:03Z
            pid program metric       rate▼ p50 p99 max p99, last 60 s
             77 worker  job_duration  0 /s   -   -   -


            job_duration: /usr/bin/worker --serve
            /job_   Enter keeps it, Esc takes it away
        "#]],
    );
    board.apply(KeyAction::Accept);
    assert_eq!(board.visible_processes().len(), 1);
    board.apply(KeyAction::Escape);
    assert_eq!(board.visible_processes().len(), 2);
}

#[test]
fn names_are_escaped_on_the_screen() {
    let mut board = AppState::new(S);
    let name = "evil\x1b]0;x\x07\u{9b}2J";
    for at in 1..3 {
        let metrics = vec![metric("a\x1b[2J\n", "\x1bns", recorded(&[at]))];
        board.record_samples(
            vec![process_sample(1, name, at * S, metrics)],
            at * S,
            UNIX_NS,
            false,
        );
    }
    check(
        &board,
        120,
        6,
        expect![[r#"
            topdeck top   last 1.00 s   1 process   by rate   2026-11-14 22:40:00Z
            pid  program                   metric        rate▼  p50  p99  max  p99, last 60 s
              1  evil\u{1b}]0;x\u{7}\u{9…  a\u{1b}[2J\n      ?    ?    ?    ?

            ? counter reset
            q quit  ? help  Enter open  s sort  / filter  space pause  r reverse  + - interval
        "#]],
    );
}

#[test]
fn empty_list_says_so() {
    let mut board = AppState::new(S);
    board.errors.push("looking at /dev/shm/x: no".into());
    board.record_samples(Vec::new(), S, UNIX_NS, false);
    check(
        &board,
        90,
        9,
        expect![[r#"
        topdeck top   first sample   0 processes   by rate   2026-11-14 22:40:00Z
        pid program metric rate▼ p50 p99 max p99, last 60 s

          No process of this host shows metrics in shared memory that may be read.
          A program does once it uses the crate shm, or runs on a Java virtual machine.
          looking at /dev/shm/x: no

        looking at /dev/shm/x: no
        q quit  ? help  Enter open  s sort  / filter  space pause  r reverse  + - interval
    "#]],
    );
}

#[test]
fn scrolling_stops_at_the_page_end() {
    let mut board = app_after(12);
    board.apply(KeyAction::Open);
    board.apply(KeyAction::Open);
    let area = Rect::new(0, 0, 80, 24);
    draw(&board, ColourDepth::None, area, &mut Buffer::empty(area));
    board.apply(KeyAction::Last);
    let end = board.scroll;
    board.apply(KeyAction::Move(-1));
    assert_eq!(board.scroll + 1, end);
}

#[test]
fn any_size_is_drawn() {
    let mut board = app_after(3);
    for page in [AppPage::Processes, AppPage::Process, AppPage::Histogram] {
        board.page = page;
        for width in 0..60 {
            for height in 0..30 {
                let area = Rect::new(0, 0, width, height);
                draw(&board, ColourDepth::Ansi256, area, &mut Buffer::empty(area));
            }
        }
        board.apply(KeyAction::Open);
    }
}

#[test]
fn only_visible_series_are_read_in_detail() {
    let mut board = app_after(3);
    let shop = PathBuf::from("/dev/shm/812");
    let close = board.detail_selection();
    assert_eq!(close.process, Some(shop.clone()), "Enter would open it");
    let worker = Path::new("/dev/shm/77");
    assert!(
        close.series_of(worker).contains("job_duration")
            && !close.series_of(worker).contains("other_duration")
    );
    assert!(close.series_of(&shop).contains("query_duration"));
    board.apply(KeyAction::Move(1));
    let close = board.detail_selection();
    assert!(close.series_of(worker).contains("other_duration"));
    assert!(
        close.series_of(&shop).contains("answer_duration")
            && !close.series_of(&shop).contains("query_duration")
    );
    assert!(!close.series_of(Path::new("/dev/shm/1")).contains("answer_duration"));
}

#[test]
fn offscreen_rows_are_not_computed() {
    for height in 0..12 {
        for (selected, rows) in [(0, 0), (0, 3), (2, 3), (999, 1_000), (500, 1_000)] {
            let seen = PageLayout::visible_rows(selected, rows, height);
            assert!(seen.len() <= height && seen.end <= rows, "{height} {selected} {rows}");
            assert!(
                height == 0 || rows == 0 || seen.contains(&selected),
                "{height} {selected} {rows}"
            );
        }
    }
    assert_eq!(PageLayout::visible_rows(500, 1_000, 24).len(), 20);
}

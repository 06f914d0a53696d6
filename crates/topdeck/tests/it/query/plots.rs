//! `topdeck query --plot`: answers drawn in the terminal.

use super::*;

#[test]
fn numbers_are_drawn_as_lines_and_distributions_as_heatmaps() {
    let dir = store_dir();
    let draw = |rest: &str, expected| check(&dir, &format!("query s --plot {rest}"), expected);
    let since = format!("--from 2026-11-09T12:00:00Z {LAST}");
    draw(
        &format!("depth {since} --step 1m"),
        expect![[r#"
        --- stdout
        depth
          ● depth: up to 4

                4 ┤          ●●         ●●          ●●         ●●          ●●         ●●
                  │
                  │
                  │
                3 ┤       ●●●         ●●         ●●●         ●●         ●●●         ●●
                  │
                  │
                  │
                2 ┤     ●●          ●●         ●●          ●●         ●●          ●●
                  │
                  │
                1 ┤   ●●         ●●●         ●●         ●●●         ●●         ●●●
                  │
                  │
                  │
                0 ┤●●●         ●●         ●●●         ●●         ●●●         ●●
                  └┬──────────────────────┬──────────────────────┬──────────────────────
                 12:00                  12:10                  12:20
          2026-11-09 12:00:00Z to 2026-11-09 12:29:00Z, every 1 min; unit unknown
        --- exit status 0
    "#]],
    );
    draw(
        &format!(
            "--ascii 'histogram_quantile(0.9, sum by (host) (exact_increase(took[5m])))' {since}"
        ),
        expect![[r#"
            --- stdout
            histogram_quantile(0.9, sum by (host) (exact_increase(took[5m])))
              * {host="a"}: up to 18.78 ms (18.69 to 19.11 ms); maximum of the values 21 ms
              + {host="b"}: up to 20.39 ms (19.95 to 20.39 ms); maximum of the values 60 ms

                      |            +++++++++++++++++++++++++++++++++++++++++++++++++++++++++
                      |            :::::::::::::::::::::::::::::::::::::::::::::::::::::::::
                      |            :::::::::::::::::::::::::::::::::::::::::::::::::::::::::
                20 ms +            :::::::::::::::::::::::::::::::::::::::::::::::::::::::::
                      |
                      |
              19.5 ms +
                      |
                      |
                      |                       ::::::::::::           ::::::::::::
                19 ms +                       ::::::::::::           ::::::::::::
                      |                       ::::::::::::           ::::::::::::
                      |                       ************           ************
                      |
              18.5 ms +
                      |            ***********            ***********            ***********
                      ++----------+-----------+----------+-----------+----------+-----------
                     12:00      12:05       12:10      12:15       12:20      12:25
              2026-11-09 12:00:00Z to 2026-11-09 12:25:00Z, every 5 min
            --- exit status 0
        "#]],
    );
    draw(
        &format!("'sum(exact_increase(took[1m]))' {since} --ascii"),
        expect![[r#"
        --- stdout
        sum(exact_increase(took[1m]))
          1,160 values, max 60 ms in the column from 2026-11-09 12:02:00Z

                  |  __________________________________________________________
            50 ms +  ..----....--....--....----....--....--....----....--....--
                  |  ..    ....  ....  ....    ....  ....  ....    ....  ....
                  |
                  |      ..                  ..                  ..
            20 ms +  @@@@%%@@@@@@@@@@@@@@@@@@%%@@@@@@@@@@@@@@@@@@%%@@@@@@@@@@@@
                  |  %%%%%%%%%%%%%%##%%@@%%%%%%%%%%%%%%##%%@@%%%%%%%%%%%%%%##%%
            10 ms +  ################%%**################%%**################%%
                  |  **++****##******--****++****##******--****++****##******--
                  |  --------  ----++------------  ----++------------  ----++--
             5 ms +  ++****##******--****++****##******--****++****##******--**
                  |  ------  ----++------------  ----++------------  ----++----
                  |
             2 ms +  ------------  ----++------------  ----++------------  ----
                  |
             1 ms +  ------------------  ------------------  ------------------
                  +--+-------------------+-------------------+-----------------
                   12:00               12:10               12:20
          values per cell  . 1  - 2  + 3  * 4  # 5+  % 7+  @ 9+    _ maximum
          2026-11-09 11:59:00Z to 2026-11-09 12:29:00Z; column width 1 min
        --- exit status 0
    "#]],
    );
    draw(
        &format!("'sum(exact_increase(took[2m]))' {since} --step 1m"),
        expect![[r#"
        --- stderr
        topdeck: cannot plot: windows of 2 min overlap at steps of 1 min, so values would be counted more than once; set --step 2min
        --- exit status 1
    "#]],
    );
    draw(
        "depth --to 2026-11-09T12:00:00Z --from 2026-11-09T13:00:00Z",
        expect![[r#"
        --- stderr
        topdeck: --from is after --to (default: the last sample)
        --- exit status 1
    "#]],
    );
}

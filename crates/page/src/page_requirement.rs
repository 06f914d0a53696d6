//! Whether a build may go on without the built web UI. Part of the build script, and of the
//! tests of this crate.

/// Environment variable that permits a release build without the page.
pub(crate) const WITHOUT_PAGE: &str = "TOPDECK_WITHOUT_PAGE";

/// What a build embeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageChoice {
    Embed,
    LeaveOut,
}

/// `profile`: `release` or `debug` as cargo says, where `quick` counts as `release`. `is_built`:
/// `web/dist` has the page. `without`: the value of [`WITHOUT_PAGE`].
pub(crate) fn choose_page(
    profile: &str,
    is_built: bool,
    without: Option<&str>,
) -> Result<PageChoice, String> {
    match (without.unwrap_or_default(), is_built) {
        ("" | "0", true) => Ok(PageChoice::Embed),
        ("" | "0", false) if profile == "release" => Err(format!(
            "cannot embed the web UI: web/dist is not built; run `cargo xtask page` (needs \
             Node.js 20.19 or newer and npm) and repeat the command, or set {WITHOUT_PAGE}=1 to \
             build topdeck without its page"
        )),
        _ => Ok(PageChoice::LeaveOut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_build_without_the_page_fails_with_the_command_to_run() {
        let error = choose_page("release", false, None).unwrap_err();
        assert!(error.contains("run `cargo xtask page`"), "{error}");
        assert!(error.contains("TOPDECK_WITHOUT_PAGE=1"), "{error}");
        assert_eq!(choose_page("release", false, Some("0")), Err(error));
    }

    #[test]
    fn a_machine_without_node_builds_without_the_page_if_asked() {
        assert_eq!(choose_page("release", false, Some("1")), Ok(PageChoice::LeaveOut));
        assert_eq!(choose_page("release", true, Some("1")), Ok(PageChoice::LeaveOut));
    }

    #[test]
    fn the_page_is_embedded_when_it_is_built_and_tests_do_not_need_it() {
        assert_eq!(choose_page("release", true, None), Ok(PageChoice::Embed));
        assert_eq!(choose_page("debug", true, Some("")), Ok(PageChoice::Embed));
        assert_eq!(choose_page("debug", false, None), Ok(PageChoice::LeaveOut));
    }
}

//! CAQL, the stream language of Circonus.

mod stage;

pub(crate) use stage::Stage;

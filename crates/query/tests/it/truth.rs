//! Answers beside the truth, and limits: what must hold whatever is asked of whatever there is.

mod answers;
mod anything;
mod averages;
mod limits;
mod question;
mod raw;
mod sides;
mod slow;

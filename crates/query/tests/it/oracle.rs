//! Answers beside the truth, and limits: what must hold whatever is asked of whatever there is.

mod answers;
mod averages;
mod comparisons;
mod limits;
mod random_queries;
mod random_request;
mod raw;
mod reference;

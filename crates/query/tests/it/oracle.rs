//! Results compared with oracles, and limits: properties of any query of any data.

mod answers;
mod averages;
mod comparisons;
mod limits;
mod random_queries;
mod random_request;
mod raw;
mod reference;

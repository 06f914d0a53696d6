//! Simulated disk (to be written).
use crate::*;
/// Stub.
#[derive(Debug)]
pub struct SimDisk;
/// Stub.
#[derive(Debug)]
pub enum Fault {}
/// Stub.
#[derive(Debug)]
pub enum Operation {}

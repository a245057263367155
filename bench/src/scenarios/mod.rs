//! The scenarios, one folder a transport, and what all of them share: the work, and the loops `crate` and `service`.

pub mod halves;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "mqtt")]
pub mod mqtt;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "outbox")]
pub mod outbox;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "server")]
pub mod server;
pub mod service;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod work;

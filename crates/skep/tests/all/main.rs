//! All tests of this crate that need no process of their own, in one binary that is linked once.

mod arenas;
mod audit;
mod callbacks;
#[cfg(feature = "sys")]
mod calls;
mod contacts;
mod contexts;
mod data_contexts;
mod dynptrs;
mod early;
mod exceptions;
mod extensions;
mod function_callbacks;
mod function_headers;
mod function_state;
mod functions;
mod guarded;
mod hardening;
#[cfg(feature = "derive")]
mod hosts;
mod hosts_and_maps;
#[allow(dead_code)] // its main function
#[cfg(feature = "derive")]
#[path = "../../examples/http_filter.rs"]
mod http_filter;
mod iterate;
mod iterators;
#[cfg(feature = "json")]
mod json;
mod loading;
mod machine;
mod masks;
mod metrics;
mod names;
mod network;
mod objects_of_the_host;
mod observed;
mod ops;
mod owners;
mod packets;
mod printing;
mod queues;
mod ring;
mod routes;
mod samples;
#[cfg(feature = "signatures")]
mod signatures;
#[cfg(feature = "typed")]
mod skeleton;
mod sleepable;
mod stacks;
mod statistics;
mod storages;
#[cfg(all(feature = "tokio", feature = "typed"))]
mod streams;
mod tasks;
mod tenants;
mod threads;
mod timers;
mod told;
mod traced;
#[cfg(feature = "typed")]
mod typed;
mod untrusted;
#[cfg(feature = "typed")]
mod upgrades;
mod user_rings;
mod verdicts;
mod work;

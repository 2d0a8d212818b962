//! What a look-up and an update cost an application, by the front that answers them:
//! `cargo run --release -p skep-exec --example look_ups`.
//!
//! The application is this program again. It prints the best of many rounds, since whatever else runs on the machine
//! only adds.

use skep::Runtime;
use skep::sys::SysEngine;
use skep_exec::{FrontChoice, Supervisor, possible_cpus};
use std::error::Error;
use std::process::Command;
use std::time::Instant;

const APPLICATION: &str = "application";
const LOOKUP: u32 = 1;
const UPDATE: u32 = 2;
const ENTRIES: u32 = 1024;
const ROUNDS: u32 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some(APPLICATION) {
        return application();
    }
    println!("front      ns a look-up   ns an update");
    for (name, front) in [("notify", FrontChoice::Notify), ("preload", FrontChoice::Preload)] {
        let runtime = Runtime::builder().cpus(possible_cpus()?).share_maps(true).privileged(true).build()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(APPLICATION).env("FRONT", name);
        let status = Supervisor::new(SysEngine::new(runtime, None)).front(front).run(&mut command)?;
        if !status.success() {
            return Err(format!("the application under {name} has failed: {status}").into());
        }
    }
    Ok(())
}

fn application() -> Result<(), Box<dyn Error>> {
    // A map of kind 2, an array, with keys of 4 bytes and values of 8.
    let create: [u32; 5] = [2, 4, 8, ENTRIES, 0];
    let map = bpf(0, create.as_ptr() as u64, 20)?;
    let front = std::env::var("FRONT")?;
    let calls = if front == "notify" { 100 } else { 10_000 };
    let (look_up, update) = (measure(LOOKUP, map, calls)?, measure(UPDATE, map, calls)?);
    println!("{front:<8} {look_up:>14.0} {update:>14.0}");
    Ok(())
}

/// Nanoseconds of a call, in the best round.
fn measure(command: u32, map: i64, calls: u32) -> Result<f64, Box<dyn Error>> {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for call in 0..calls {
            let (key, mut value) = (call % ENTRIES, 1u64);
            let attributes = [map as u64, &raw const key as u64, &raw mut value as u64, 0];
            bpf(command, attributes.as_ptr() as u64, 32)?;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    Ok(best)
}

/// bpf(2) by `syscall()` of libc, as libbpf calls it.
fn bpf(command: u32, attributes: u64, size: u32) -> Result<i64, std::io::Error> {
    // SAFETY: the attributes name memory of this program that is large enough, and lives.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size) };
    if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(answer) }
}

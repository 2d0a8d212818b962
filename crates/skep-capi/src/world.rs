//! Worlds: a machine as programs see it, from TOML, and the way of packets through it.

use crate::argument::{exclusive, give, name, place, shared};
use crate::load::free;
use crate::status::{Failure, guard};
use crate::text::give_text;
use skep::world::Place;
use skep::world::file::Described;
use skep::{Link, Packet, Program, World};
use std::ffi::{c_char, c_int};
use std::time::Duration;

/// Places of a device in the order of `enum skep_place`.
pub const PLACES: [(&str, Place); 3] = [
    ("SKEP_PLACE_XDP", Place::Xdp),
    ("SKEP_PLACE_INGRESS", Place::Ingress),
    ("SKEP_PLACE_EGRESS", Place::Egress),
];

/// Reads a world.
///
/// # Safety
///
/// `toml` is null or ends in a zero byte; `world` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_world_parse(toml: *const c_char, world: *mut *mut World) -> c_int {
    guard(|| {
        let to = place(world, "skep_world_parse: world")?;
        // SAFETY: the caller's promise.
        let text = unsafe { name(toml, "skep_world_parse: toml")? };
        let described = Described::parse(text).map_err(|error| Failure::text(error.to_string()))?;
        let Described { machine, clock, random, .. } = described;
        // SAFETY: not null, and the caller's promise.
        unsafe { give(to, World::with(machine, clock, random)) };
        Ok(())
    })
}

/// Attaches a program to a device.
///
/// # Safety
///
/// `world` is null or not freed; `program` is null or valid; `device` is null or ends in a zero byte; `link` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_world_attach(
    world: *const World,
    program: *const Program,
    device: *const c_char,
    at: c_int,
    link: *mut *mut Link,
) -> c_int {
    guard(|| {
        let to = place(link, "skep_world_attach: link")?;
        // SAFETY: not null, and the caller's promise.
        unsafe {
            let world = shared(world, "skep_world_attach: world")?;
            let program = shared(program, "skep_world_attach: program")?;
            let device = name(device, "skep_world_attach: device")?;
            let known = usize::try_from(at).ok().and_then(|at| PLACES.get(at));
            let unknown = || Failure::argument(format!("skep_world_attach: {at} is no enum skep_place"));
            give(to, world.attach(program, device, known.ok_or_else(unknown)?.1)?);
        }
        Ok(())
    })
}

/// Lets a packet come in at a device.
///
/// # Safety
///
/// `world` is null or not freed; `device` is null or ends in a zero byte; `packet` is null or not freed and not used by
/// anything else; `trace` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_world_inject(
    world: *const World,
    device: *const c_char,
    packet: *mut Packet,
    trace: *mut *mut c_char,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to all.
        unsafe {
            let world = shared(world, "skep_world_inject: world")?;
            let device = name(device, "skep_world_inject: device")?;
            let way = world.inject(device, exclusive(packet, "skep_world_inject: packet")?)?;
            if !trace.is_null() {
                give_text(trace, &way.show(&world.machine()).to_string());
            }
        }
        Ok(())
    })
}

/// Advances a stepped clock.
///
/// # Safety
///
/// `world` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_world_step(world: *const World, ns: u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let world = unsafe { shared(world, "skep_world_step: world")? };
        let failure = || match world.clock().is_virtual() {
            true => Failure::busy("skep_world_step: another step is in progress"),
            false => Failure::argument("skep_world_step: its clock is the machine's; give the world a clock"),
        };
        world.step(Duration::from_nanos(ns)).ok_or_else(failure)?;
        Ok(())
    })
}

/// Frees a world. Runtimes and links keep it.
///
/// # Safety
///
/// `world` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_world_free(world: *mut World) {
    // SAFETY: the caller's promise.
    unsafe { free(world) };
}

//! Packets and contexts: what programs run on, and what they leave, as Python values.

use crate::errors;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use skep::abi::{Context as Seen, FieldKind, Native, ProgramType};
use skep::{Context, Event, Outcome, Packet, PacketInfo, Redirect, Vlan};

/// Fields of [`PacketInfo`] that are numbers.
macro_rules! numbers {
    ($($field:ident),* $(,)?) => {
        fn set_number(info: &mut PacketInfo, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
            match name {
                $(stringify!($field) => info.$field = value.extract()?,)*
                _ => return Ok(false),
            }
            Ok(true)
        }

        fn numbers(info: &PacketInfo, into: &Bound<'_, PyDict>) -> PyResult<()> {
            $(into.set_item(intern!(into.py(), stringify!($field)), info.$field)?;)*
            Ok(())
        }

        const NUMBERS: &[&str] = &[$(stringify!($field)),*];
    };
}

numbers!(
    ingress_ifindex,
    ifindex,
    rx_queue_index,
    tstamp,
    tstamp_type,
    hwtstamp,
    pkt_type,
    mark,
    priority,
    queue_mapping,
    tc_index,
    tc_classid,
    napi_id,
    hash,
    hash_type,
    wire_len,
    gso_segs,
    gso_size,
    gso_type,
    cgroup_classid,
    route_realm,
    netfilter_hook,
    cb,
);

/// The metadata of a packet, from a dictionary.
pub(crate) fn info_of(fields: &Bound<'_, PyDict>) -> PyResult<PacketInfo> {
    let mut info = PacketInfo::default();
    for (name, value) in fields {
        let name: String = name.extract()?;
        if name == "vlan" {
            let vlan: Option<(u16, u16)> = value.extract()?;
            info.vlan = vlan.map(|(protocol, tci)| Vlan { protocol, tci });
        } else if !set_number(&mut info, &name, &value)? {
            let known: Vec<_> = ["vlan"].iter().chain(NUMBERS).map(|known| (*known).to_owned()).collect();
            let text = format!("a packet has no field '{name}'; it has {}", known.join(", "));
            return Err(errors::unknown(fields.py(), "field", name, known, &text));
        }
    }
    Ok(info)
}

fn info_dict<'py>(py: Python<'py>, info: &PacketInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    numbers(info, &dict)?;
    dict.set_item(intern!(py, "vlan"), info.vlan.map(|vlan| (vlan.protocol, vlan.tci)))?;
    Ok(dict)
}

/// What a redirection is, as the words of the class `Redirect`.
pub(crate) fn redirect_dict(py: Python<'_>, redirect: Redirect) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    let (kind, index, ingress) = match redirect {
        Redirect::Device { index, ingress } => ("device", index.into(), ingress),
        Redirect::Peer { index } => ("peer", index.into(), true),
        Redirect::Neighbour { index, next_hop } => {
            dict.set_item(intern!(py, "next_hop"), next_hop.map(|hop| hop.to_string()))?;
            ("neighbour", index.into(), false)
        }
        Redirect::Devices => ("devices", 0, false),
        Redirect::Cpu { cpu } => ("cpu", cpu.into(), false),
        Redirect::Stream { cookie, ingress } => ("stream", cookie, ingress),
        Redirect::Socket { socket } => ("socket", socket.into(), false),
        other => return Err(PyTypeError::new_err(format!("unknown redirection {other:?}"))),
    };
    dict.set_item(intern!(py, "kind"), kind)?;
    dict.set_item(intern!(py, "index"), index)?;
    dict.set_item(intern!(py, "ingress"), ingress)?;
    dict.into_py_any(py)
}

fn event<'py>(py: Python<'py>, event: &Event) -> (String, u32, Bound<'py, PyBytes>) {
    (event.map.clone(), event.cpu, PyBytes::new(py, &event.bytes))
}

/// What a run on a packet did.
pub(crate) fn outcome_dict<'py>(
    py: Python<'py>,
    outcome: &Outcome,
    packet: &Packet,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "result"), outcome.result)?;
    dict.set_item(intern!(py, "name"), outcome.verdict)?;
    dict.set_item(intern!(py, "packet"), PyBytes::new(py, packet.bytes()))?;
    dict.set_item(intern!(py, "metadata"), PyBytes::new(py, packet.metadata()))?;
    dict.set_item(intern!(py, "info"), info_dict(py, &packet.info)?)?;
    dict.set_item(intern!(py, "redirect"), outcome.redirect.map(|to| redirect_dict(py, to)).transpose()?)?;
    dict.set_item(intern!(py, "devices"), outcome.devices.clone())?;
    let clones = outcome
        .clones
        .iter()
        .map(|clone| Ok((redirect_dict(py, clone.to)?, PyBytes::new(py, clone.packet.bytes()))));
    dict.set_item(intern!(py, "clones"), clones.collect::<PyResult<Vec<_>>>()?)?;
    dict.set_item(intern!(py, "events"), PyList::new(py, outcome.events.iter().map(|one| event(py, one)))?)?;
    dict.set_item(intern!(py, "changed"), outcome.changed)?;
    Ok(dict)
}

/// The names of a context's numbers, those of arrays with their index.
fn numbers_of(kind: &ProgramType) -> Vec<String> {
    let Seen::Struct(layout) = kind.context else { return Vec::new() };
    let scalars: Vec<&str> = layout
        .fields
        .iter()
        .filter(|field| field.kind == FieldKind::Scalar)
        .map(|field| field.name)
        .collect();
    let several = |name: &str| scalars.iter().filter(|other| **other == name).count() > 1;
    let mut names = Vec::new();
    for (at, name) in scalars.iter().enumerate() {
        let before = scalars[..at].iter().filter(|other| *other == name).count();
        names.push(if several(name) { format!("{name}[{before}]") } else { (*name).to_owned() });
    }
    names
}

/// A context of the type: its numbers by name, or its bytes; and the bytes that it leads to.
pub(crate) fn context_of(
    py: Python<'_>,
    kind: &'static ProgramType,
    fields: Option<&Bound<'_, PyDict>>,
    data: Option<&[u8]>,
) -> PyResult<Context> {
    let raise = |error| errors::raise(py, error);
    let mut context = Context::new(kind).map_err(raise)?;
    if let Some(fields) = fields {
        for (name, value) in fields {
            context.set(&name.extract::<String>()?, value.extract()?).map_err(raise)?;
        }
    }
    match data {
        Some(data) if kind.native == Some(Native::Bytes) => context.set_bytes(data).map_err(raise)?,
        Some(data) => context.set_data(data).map_err(raise)?,
        None => {}
    }
    Ok(context)
}

/// What a run on a context left.
pub(crate) fn context_dict<'py>(
    py: Python<'py>,
    kind: &'static ProgramType,
    result: u64,
    context: &Context,
) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    for name in numbers_of(kind) {
        let value = context.field(&name).map_err(|error| errors::raise(py, error))?;
        fields.set_item(name, value)?;
    }
    let dict = plain_dict(py, kind, result)?;
    let bytes = if kind.native == Some(Native::Bytes) { context.bytes() } else { context.data() };
    dict.set_item(intern!(py, "packet"), PyBytes::new(py, bytes))?;
    dict.set_item(intern!(py, "context"), fields)?;
    Ok(dict)
}

/// A result alone.
pub(crate) fn plain_dict<'py>(
    py: Python<'py>,
    kind: &ProgramType,
    result: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "result"), result)?;
    dict.set_item(intern!(py, "name"), kind.verdict(result))?;
    Ok(dict)
}

/// The program type of that name.
pub(crate) fn type_named(name: &str) -> PyResult<&'static ProgramType> {
    ProgramType::from_name(name).ok_or_else(|| {
        let mut known: Vec<_> = skep::abi::TYPES.iter().map(|kind| kind.name).collect();
        known.dedup();
        PyValueError::new_err(format!("there is no program type '{name}'; there are: {}", known.join(", ")))
    })
}

//! What programs run on, from keywords of Python.

use crate::errors::failed;
use crate::values;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use skep::{Context, Packet, PacketInfo};

/// A field of a packet's metadata.
type Field = (&'static str, fn(&mut PacketInfo, u64));

/// The metadata that may be given, by the names that programs see.
const FIELDS: &[Field] = &[
    ("ingress_ifindex", |info, value| info.ingress_ifindex = value as u32),
    ("ifindex", |info, value| info.ifindex = value as u32),
    ("rx_queue_index", |info, value| info.rx_queue_index = value as u32),
    ("tstamp", |info, value| info.tstamp = value),
    ("hwtstamp", |info, value| info.hwtstamp = value),
    ("pkt_type", |info, value| info.pkt_type = value as u32),
    ("mark", |info, value| info.mark = value as u32),
    ("priority", |info, value| info.priority = value as u32),
    ("queue_mapping", |info, value| info.queue_mapping = value as u32),
    ("tc_index", |info, value| info.tc_index = value as u32),
    ("tc_classid", |info, value| info.tc_classid = value as u32),
    ("napi_id", |info, value| info.napi_id = value as u32),
    ("hash", |info, value| info.hash = value as u32),
    ("wire_len", |info, value| info.wire_len = value as u32),
    ("gso_segs", |info, value| info.gso_segs = value as u32),
    ("gso_size", |info, value| info.gso_size = value as u32),
];

/// Sets a packet's metadata.
pub(crate) fn describe(packet: &mut Packet, fields: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    for (name, value) in fields.into_iter().flatten() {
        let name: String = name.extract()?;
        let Some((_, set)) = FIELDS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
            let text = format!("packets have no field {name}; their fields: {}", known.join(", "));
            return Err(PyTypeError::new_err(text));
        };
        set(&mut packet.info, value.extract()?);
    }
    Ok(())
}

/// The context of a program that runs on no packet. `data` is what its fields `data` and `data_end` lead to.
pub(crate) fn filled(
    program: &skep::Program,
    data: Option<&Bound<'_, PyAny>>,
    fields: Option<&Bound<'_, PyDict>>,
) -> PyResult<Context> {
    let mut context = Context::of(program).map_err(failed)?;
    if let Some(data) = data {
        let bytes = values::input(data)?;
        // Some types are bytes, and some have data beside their fields.
        if context.set_bytes(&bytes).is_err() {
            context.set_data(&bytes).map_err(failed)?;
        }
    }
    for (name, value) in fields.into_iter().flatten() {
        context.set(&name.extract::<String>()?, value.extract()?).map_err(failed)?;
    }
    Ok(context)
}

/// The given fields as the program left them.
pub(crate) fn fields(
    py: Python<'_>,
    context: &Context,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyDict>> {
    let after = PyDict::new(py);
    for (name, _) in given.into_iter().flatten() {
        let value = context.field(&name.extract::<String>()?).map_err(failed)?;
        after.set_item(name, value)?;
    }
    Ok(after.unbind())
}

//! What the host's types say of a table, and whether the plug-in was compiled with the same.

use super::{Inner, Integer, MOST, OpsMember, OpsTable, Param};
use crate::error::Error;
use crate::program::Program;
use skep_btf::{Btf, Kind, Member, essential_name};
use std::collections::HashMap;
use std::sync::Arc;

/// The declaration tag of members that a table must have.
const REQUIRED: &str = "required";

/// A table of the plug-in, checked against the host's types. All its functions are among the programs.
pub(super) fn table(
    table: &skep_elf::Table,
    own: &Btf,
    host: Option<&Btf>,
    programs: &HashMap<&str, &Program>,
) -> Result<OpsTable, Error> {
    let damaged = |source: skep_btf::Error| refused(table, "", source.to_string());
    let of_plug_in = own.ty(table.structure).map_err(damaged)?;
    let structure = essential_name(of_plug_in.name().map_err(damaged)?).to_owned();
    let Some(host) = host else {
        let text = format!(
            "the host's types are not given; give those with struct {structure} by Object::set_host_types"
        );
        return Err(refused(table, "", text));
    };
    let Some(id) = host.find(&structure, Kind::Struct) else {
        return Err(refused(table, "", format!("the host's types have no struct {structure}")));
    };
    let of_host = host.ty(id).map_err(damaged)?;
    let (size, given) = (of_host.size().unwrap_or(0), of_plug_in.size().unwrap_or(0));
    if size != given {
        let text = format!(
            "struct {structure} has {size} bytes in the host and {given} in the plug-in; compile the plug-in with the \
             host's header"
        );
        return Err(refused(table, "", text));
    }
    let required: Vec<_> = host.decl_tags(id).filter(|tag| tag.name == REQUIRED).collect();
    let by_name: HashMap<_, _> = of_plug_in
        .members()
        .enumerate()
        .filter_map(|(number, member)| Some((member.name().ok()?.to_owned(), (number, member))))
        .collect();
    let (mut members, mut fields) = (Vec::new(), HashMap::new());
    for (number, member) in of_host.members().enumerate() {
        let name = member.name().map_err(damaged)?.to_owned();
        let theirs = by_name.get(&name).filter(|(_, theirs)| theirs.bit_offset == member.bit_offset);
        let Some((at, theirs)) = theirs else {
            let text = format!(
                "the plug-in's struct {structure} has no such member at byte {}; compile it with the host's header",
                member.bit_offset / 8
            );
            return Err(refused(table, &name, text));
        };
        let Ok(prototype) = host.prototype(member.ty) else {
            let start = (member.bit_offset / 8) as usize;
            let bytes = host.size(member.ty).unwrap_or(0) as usize;
            fields.insert(name, start..start + bytes);
            continue;
        };
        let stub = host.find(&format!("{structure}__{name}"), Kind::Func);
        let named = stub.and_then(|stub| host.prototype(stub).ok()).unwrap_or(prototype);
        let refuse = |text: String| refused(table, &name, text);
        agree((host, &member), (own, theirs)).map_err(refuse)?;
        let function = table.functions.iter().find(|(number, _)| number == at);
        let Some((_, program)) = function else {
            if required.iter().any(|tag| tag.component == Some(number as u32)) {
                return Err(refuse("the host requires it, and the plug-in leaves it 0".to_owned()));
            }
            continue;
        };
        let params = named.params().map(|param| {
            let nullable = param.name().is_ok_and(|name| name.ends_with("__nullable"));
            parameter(host, param.ty, nullable)
        });
        let params: Box<[Param]> = params.collect::<Result<_, _>>().map_err(refuse)?;
        if params.len() > MOST {
            return Err(refuse(format!("it has {} parameters, and {MOST} are the most", params.len())));
        }
        let returns = integer(host, prototype.target()).map_err(refuse)?;
        members.push(OpsMember { name, program: programs[program.as_str()].clone(), params, returns });
    }
    let (name, bytes) = (table.name.clone(), table.bytes.clone());
    Ok(OpsTable(Arc::new(Inner { name, structure, bytes, fields, members })))
}

#[cold]
fn refused(table: &skep_elf::Table, member: &str, why: String) -> Error {
    Error::OpsTable { table: table.name.clone(), member: member.to_owned(), why }
}

/// Checks that a function has the same parameters and result in the host and in the plug-in, as far as sizes and
/// pointers
/// go: the names of types may differ.
fn agree((host, ours): (&Btf, &Member<'_>), (own, theirs): (&Btf, &Member<'_>)) -> Result<(), String> {
    let header = "compile the plug-in with the host's header";
    let expected = shape(host, ours.ty).map_err(|error| error.to_string())?;
    let Ok(found) = shape(own, theirs.ty) else {
        return Err(format!("it is a function in the host, and none in the plug-in; {header}"));
    };
    if expected != found {
        return Err(format!(
            "it is {} in the host, and {} in the plug-in; {header}",
            show(&expected),
            show(&found)
        ));
    }
    Ok(())
}

/// The sizes of the parameters, then of the result; pointers are `None`.
fn shape(btf: &Btf, function: u32) -> Result<Vec<Option<u32>>, skep_btf::Error> {
    let prototype = btf.prototype(function)?;
    let types = prototype.params().map(|param| param.ty).chain([prototype.target()]);
    types
        .map(|ty| match btf.resolve(ty)?.kind {
            Kind::Ptr => Ok(None),
            Kind::Void => Ok(Some(0)),
            _ => btf.size(ty).map(Some),
        })
        .collect()
}

fn show(shape: &[Option<u32>]) -> String {
    let one = |size: &Option<u32>| match size {
        None => "pointer".to_owned(),
        Some(0) => "nothing".to_owned(),
        Some(bytes) => format!("{bytes} bytes"),
    };
    match shape.split_last() {
        Some((result, params)) => {
            let params: Vec<_> = params.iter().map(one).collect();
            format!("a function of ({}) to {}", params.join(", "), one(result))
        }
        None => "no function".to_owned(),
    }
}

fn parameter(host: &Btf, ty: u32, nullable: bool) -> Result<Param, String> {
    let damaged = |error: skep_btf::Error| error.to_string();
    let Some(pointer) = host.pointer(ty).map_err(damaged)? else {
        let of = integer(host, ty)?;
        return of.map(Param::Number).ok_or_else(|| "it is variadic, which no table can be".to_owned());
    };
    let to = host.ty(pointer.to).map_err(damaged)?;
    if matches!(to.kind, Kind::Struct | Kind::Union) && !pointer.is("user") && !pointer.is("percpu") {
        return Ok(Param::Object { bytes: to.size().unwrap_or(0) as usize, nullable });
    }
    // An address that programs do not follow.
    Ok(Param::Number(Integer { bytes: 8, signed: false }))
}

/// An integer type; `None` for nothing.
fn integer(host: &Btf, ty: u32) -> Result<Option<Integer>, String> {
    let damaged = |error: skep_btf::Error| error.to_string();
    let of = host.resolve(ty).map_err(damaged)?;
    match of.kind {
        Kind::Void => Ok(None),
        Kind::Int | Kind::Enum | Kind::Enum64 => {
            let bytes = of.size().unwrap_or(8);
            if bytes > 8 {
                return Err(format!("it takes or returns a number of {bytes} bytes, and 8 are the most"));
            }
            Ok(Some(Integer { bytes, signed: of.is_signed() }))
        }
        _ => {
            let name = host.type_name(ty).map_err(damaged)?;
            Err(format!("it takes or returns `{name}` by value; use numbers and pointers to structures"))
        }
    }
}

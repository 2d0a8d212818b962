//! Exception callbacks: functions that `bpf_throw` calls when it leaves a program. No instruction refers to one; a
//! declaration tag on the program names it.
//!
//! ```text
//!   FUNC program    DECL_TAG "exception_callback:handler" -> program      FUNC handler
//! ```
//!
//! The linker appends the callback after all functions that the program reaches by itself, as libbpf does. The verifier
//! sees the same tags, and checks that there is at most one callback and that it has the right signature.

use std::collections::HashMap;

use skep_btf::{Btf, Kind};

use crate::elf::Elf;
use crate::error::Error;

use super::Functions;

/// The start of the tag's text.
const TAG: &str = "exception_callback:";

/// By function: the callbacks that its tags name and the object has. Names are looked up only if there are such tags.
pub(crate) fn callbacks(
    elf: &Elf,
    btf: Option<&Btf>,
    functions: &Functions,
) -> Result<HashMap<usize, Vec<usize>>, Error> {
    let mut tagged = Vec::new();
    for tag in btf.iter().flat_map(|btf| btf.own_types()).filter(|ty| ty.kind == Kind::DeclTag) {
        let named = tag.name().ok().and_then(|text| text.strip_prefix(TAG));
        let program = btf.and_then(|btf| btf.ty(tag.target()).ok()).filter(|ty| ty.kind == Kind::Func);
        let program = program.filter(|_| tag.component().is_none()).and_then(|program| program.name().ok());
        tagged.extend(program.zip(named));
    }
    let mut callbacks: HashMap<usize, Vec<usize>> = HashMap::new();
    if tagged.is_empty() {
        return Ok(callbacks);
    }
    let mut by_name = HashMap::with_capacity(functions.len());
    for index in 0..functions.len() {
        let function = functions.function(index);
        let name = elf.symbol_name(&elf.symbols[function.symbol])?;
        // Static functions of several files may share a name, also with a global one.
        if function.global || !by_name.contains_key(name) {
            by_name.insert(name, index);
        }
    }
    for (program, callback) in tagged {
        if let (Some(program), Some(callback)) = (by_name.get(program), by_name.get(callback)) {
            callbacks.entry(*program).or_default().push(*callback);
        }
    }
    Ok(callbacks)
}

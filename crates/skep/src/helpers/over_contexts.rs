//! Which helpers with a context run for programs that do not run on packets.
//!
//! The verifier proves that such a helper gets the program's own context, of whatever type the program is. Most helpers
//! here take it for a packet's context. So this list is checked at load, and a helper that is not in it is refused.

use crate::error::Error;
use skep_abi::{ArgKind, Native, OwnParam};
use skep_isa::{CallTarget, Insn};
use skep_verifier::Verified;

/// Helpers that look at the program's type before they look at its context, or do not look at it.
const ANY_CONTEXT: &[u32] = &[
    12, 25, 26, 27, 46, 49, 53, 57, 59, 60, 61, 62, 63, 64, 67, 68, 70, 71, 82, 84, 85, 90, 91, 99, 101, 102,
    103, 104, 107, 108, 122, 124, 142, 143, 144, 173, 174,
];

/// Checks each call of a helper with a context.
pub(crate) fn check(program: &Verified) -> Result<(), Error> {
    let kind = program.program_type();
    let reached = program.insns().iter().zip(program.facts()).filter(|(_, fact)| fact.reached);
    for (insn, _) in reached {
        let taker = match *insn {
            Insn::Call { target: CallTarget::Helper(id) } if !ANY_CONTEXT.contains(&id) => kind
                .helper(id)
                .filter(|proto| {
                    let context = |kind: &ArgKind| matches!(kind, ArgKind::Context | ArgKind::ContextOrNull);
                    proto.args.iter().any(context)
                })
                .map(|proto| format!("bpf_{}", proto.name)),
            // The verifier takes only the socket buffer that such a context leads to.
            Insn::Call { target: CallTarget::Kfunc { .. } } if kind.native == Some(Native::Netfilter) => None,
            Insn::Call { target: CallTarget::Kfunc { id, .. } } => skep_abi::own_kfunc(id as u32)
                .filter(|own| own.params.contains(&OwnParam::Context))
                .map(|own| own.name.to_owned()),
            _ => None,
        };
        if let Some(helper) = taker {
            let program = program.name().to_owned();
            return Err(Error::HelperOfContext { program, program_type: kind.name, helper });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::helpers::PROVIDED;
    use skep_abi::{Native, TYPES};

    /// Helpers that find the packet without an argument for it.
    const OF_PACKETS: [u32; 4] = [23, 51, 152, 155];

    #[test]
    fn helpers_that_find_the_packet_themselves_are_not_open_to_types_without_one() {
        for id in OF_PACKETS {
            assert!(PROVIDED.iter().any(|(provided, _)| *provided == id), "{id}");
            let without = |native| matches!(native, Some(Native::Struct | Native::Bytes));
            for kind in TYPES.iter().filter(|kind| without(kind.native)) {
                assert!(!kind.may_call(id, None), "{} {id}", kind.name);
            }
        }
    }
}

//! PKRU: two bits for each of sixteen keys (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3,
//! 4.6.2).

use std::arch::{asm, x86_64::__cpuid_count};

pub(crate) const IS_SUPPORTED: bool = true;

/// Whether the kernel has turned protection keys on: leaf 7, ECX, bit 4 (OSPKE).
pub(crate) fn is_on() -> bool {
    const OSPKE: u32 = 1 << 4;
    __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).ecx & OSPKE != 0
}

/// This thread's rights. Only where a key was allocated, so that the instruction is there.
pub(crate) fn register() -> u32 {
    let rights;
    // SAFETY: RDPKRU reads a register of this thread. It is there, because keys come from pkey_alloc(2) alone.
    unsafe {
        asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _, options(nomem, nostack, preserves_flags))
    };
    rights
}

/// Sets them.
pub(crate) fn set_register(rights: u32) {
    // SAFETY: as above. Callers change the bits of this crate's key alone. The compiler moves no access of memory over
    // it, since the block has no option `nomem`; neither does the processor.
    unsafe { asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0, options(nostack, preserves_flags)) };
}

/// WRPKRU (0f 01 ef), and XRSTOR (0f ae /5 with an operand in memory), which loads PKRU if asked to.
pub(crate) fn begins_an_opening(code: &[u8]) -> bool {
    match code {
        [0x0f, 0x01, 0xef, ..] => true,
        [0x0f, 0xae, operand, ..] => operand >> 3 & 7 == 5 && operand >> 6 != 3,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::arch::opens;

    #[test]
    fn instructions_that_give_rights_are_found_wherever_they_begin() {
        // ret; mov eax, 0xef010f; xrstor [rdi]; xrstor64 [rdi]
        assert_eq!(opens(&[0xc3, 0xb8, 0x0f, 0x01, 0xef, 0]), Some(2));
        assert_eq!(opens(&[0x0f, 0xae, 0x2f]), Some(0));
        assert_eq!(opens(&[0x48, 0x0f, 0xae, 0x6f, 8]), Some(1));
        // lfence, mfence, sfence, rdpkru, xsave [rdi], clflush [rdi]; and pieces at the end.
        let others: [&[u8]; 8] = [
            &[0x0f, 0xae, 0xe8],
            &[0x0f, 0xae, 0xf0],
            &[0x0f, 0xae, 0xf8],
            &[0x0f, 0x01, 0xee],
            &[0x0f, 0xae, 0x27],
            &[0x0f, 0xae, 0x3f],
            &[0x0f, 0x01],
            &[],
        ];
        for code in others {
            assert_eq!(opens(code), None, "{code:x?}");
        }
    }
}

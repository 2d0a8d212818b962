/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Sixteen frames of mixed traffic are parsed: Ethernet, one VLAN tag, IPv4 with options or IPv6, TCP or UDP. Short
 * loads, byte swaps and branches, as packet programs are made of.
 * Memory: 16 slots of 128 bytes: the frame's length in two bytes, then at most 126 bytes of it; read only.
 */
#include "bench.h"

#define SLOT 128
#define SLOTS 16

INLINE u32 load16(const u8 *at)
{
	return __builtin_bswap16(*(const u16 *)at);
}

INLINE u32 load32(const u8 *at)
{
	return __builtin_bswap32(*(const u32 *)at);
}

PROGRAM(dissector)
{
	NEED(SLOT * SLOTS);
	u64 result = *(u64 *)mem;

	for (int i = 0; i < SLOTS; i++) {
		const u8 *frame = mem + i * SLOT + 2;
		u32 length = *(const u16 *)(mem + i * SLOT), at = 14, type, protocol;

		if (length < 14)
			continue;
		type = load16(frame + 12);
		if (type == 0x8100) {
			if (length < 18)
				continue;
			type = load16(frame + 16);
			at = 18;
		}
		result = result * 31 + type;
		if (type == 0x0800) {
			if (length < at + 20)
				continue;
			protocol = frame[at + 9];
			result = (result ^ load32(frame + at + 12)) * 31 + load32(frame + at + 16);
			at += (frame[at] & 15) * 4;
		} else if (type == 0x86dd) {
			if (length < at + 40)
				continue;
			protocol = frame[at + 6];
			for (int word = 0; word < 8; word++)
				result = result * 31 + load32(frame + at + 8 + 4 * word);
			at += 40;
		} else {
			continue;
		}
		if (protocol == 6) {
			if (length < at + 20)
				continue;
			result = result * 31 + load32(frame + at) + (frame[at + 13] & 0x3f);
		} else if (protocol == 17) {
			if (length < at + 8)
				continue;
			result = result * 31 + load32(frame + at) + load16(frame + at + 4);
		}
	}
	return result;
}

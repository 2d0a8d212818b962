/* The context of programs in SEC("http_filter"). Written by skep from the host's description: do not edit. */
#ifndef SKEP_HTTP_REQUEST_H
#define SKEP_HTTP_REQUEST_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

enum http {
	HTTP_ALLOW = 0,
	HTTP_DENY = 1,
	HTTP_REDIRECT = 2,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct client {
	const __u8 address[16];
	const __u8 verified;
};

struct http_request {
	const __u8 *method;
	const __u8 *method_end;
	const __u8 *path;
	const __u8 *path_end;
	const __u8 *headers;
	const __u8 *headers_end;
	__u8 *body;
	__u8 *body_end;
	const struct client *client __attribute__((btf_decl_tag("skep:nullable")));
	__u32 priority;
} __attribute__((btf_decl_tag("skep:context=http_filter"))) __attribute__((btf_decl_tag("skep:verdict=http:allow=0,deny=1,redirect=2")));

#pragma clang attribute pop

static struct http_request *const skep_http_request __attribute__((unused)) = 0;

extern int http_set_path(struct http_request *ctx, const void *bytes1, __u64 bytes1_len) __attribute__((section(".ksyms")));
extern int http_set_header(struct http_request *ctx, const void *bytes1, __u64 bytes1_len, const void *bytes3, __u64 bytes3_len) __attribute__((section(".ksyms")));

#endif /* SKEP_HTTP_REQUEST_H */

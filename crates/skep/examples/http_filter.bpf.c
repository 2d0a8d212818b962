// A plug-in for the host of http_filter.rs: keeps strangers from /admin, rewrites /v1/ to /v2/, redirects /old, and hides
// card numbers in bodies.
//
// Programs may use bytes of the request that they have compared with the end of the same bytes.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "http_filter.h"

#define LONGEST_PATH 64
#define LONGEST_BODY 256

/* Whether the bytes begin with a text. */
#define begins(start, end, text) begins_with(start, end, text, sizeof(text) - 1)

static __always_inline int begins_with(const __u8 *start, const __u8 *end, const char *text, int length)
{
	if (start + length > end)
		return 0;
	for (int i = 0; i < length; i++)
		if (start[i] != text[i])
			return 0;
	return 1;
}

/* Digits after the first "card=" become stars. */
static __always_inline void hide_card(struct http_request *request)
{
	__u8 *at = request->body, *end = request->body_end;

	if (!begins(at, end, "card="))
		return;
	for (int i = 5; i < LONGEST_BODY && at + i + 1 <= end; i++)
		if (at[i] >= '0' && at[i] <= '9')
			at[i] = '*';
}

static __always_inline int next_version(struct http_request *request)
{
	const __u8 *path = request->path, *end = request->path_end;
	__u8 rewritten[LONGEST_PATH];
	int length = 0;

	for (; length < LONGEST_PATH && path + length + 1 <= end; length++)
		rewritten[length] = path[length];
	rewritten[2] = '2';
	return http_set_path(request, rewritten, length);
}

SEC("http_filter")
int filter(struct http_request *request)
{
	const __u8 *path = request->path, *end = request->path_end;

	hide_card(request);
	if (begins(path, end, "/admin")) {
		const struct client *client = request->client;

		if (!client || !client->verified)
			return HTTP_DENY;
		request->priority = 10;
	}
	if (begins(path, end, "/old")) {
		static const char name[] = "Location", value[] = "/new";

		http_set_header(request, name, sizeof(name) - 1, value, sizeof(value) - 1);
		return HTTP_REDIRECT;
	}
	if (begins(path, end, "/v1/"))
		next_version(request);
	return HTTP_ALLOW;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

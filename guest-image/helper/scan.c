#include "mcp.h"

#include <string.h>

#define DEPTH_MAX 512

/* Which value of the message is being read. */
enum place { PLACE_ELSEWHERE, PLACE_ID, PLACE_METHOD, PLACE_PARAMS, PLACE_CANCELLED };

struct scanner {
  const char *at, *end;
  char open[DEPTH_MAX]; /* `{` or `[` of each level */
  int depth;
  enum place place;
  bool is_in_params; /* at depth 2 */
  struct message *message;
};

bool text_is(struct text text, const char *wanted) {
  return text.length == strlen(wanted) && memcmp(text.at, wanted, text.length) == 0;
}

static void skip_space(struct scanner *s) {
  while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n'))
    s->at++;
}

static bool skip_escape(struct scanner *s) {
  if (s->end - s->at < 2)
    return false;
  char c = s->at[1];
  s->at += 2;
  if (c != 'u')
    return c != '\0' && strchr("\"\\/bfnrt", c) != NULL;
  for (int i = 0; i < 4; i++, s->at++)
    if (s->at >= s->end || *s->at == '\0' || strchr("0123456789abcdefABCDEF", *s->at) == NULL)
      return false;
  return true;
}

static bool skip_string(struct scanner *s) {
  if (s->at >= s->end || *s->at != '"')
    return false;
  s->at++;
  while (s->at < s->end && *s->at != '"') {
    unsigned char c = (unsigned char)*s->at;
    size_t length = c < 0x20 ? 0 : c == '\\' ? 1 : utf8_length((const unsigned char *)s->at, (size_t)(s->end - s->at));
    if (length == 0 || (c == '\\' && !skip_escape(s)))
      return false;
    s->at += c == '\\' ? 0 : length;
  }
  if (s->at >= s->end)
    return false;
  s->at++;
  return true;
}

static bool skip_digits(struct scanner *s) {
  const char *from = s->at;
  while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
    s->at++;
  return s->at > from;
}

static bool skip_number(struct scanner *s) {
  if (*s->at == '-')
    s->at++;
  if (s->at < s->end && *s->at == '0')
    s->at++;
  else if (!skip_digits(s))
    return false;
  if (s->at < s->end && *s->at == '.') {
    s->at++;
    if (!skip_digits(s))
      return false;
  }
  if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
    s->at++;
    if (s->at < s->end && (*s->at == '+' || *s->at == '-'))
      s->at++;
    return skip_digits(s);
  }
  return true;
}

static bool skip_word(struct scanner *s) {
  static const char *const words[] = {"true", "false", "null"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    size_t length = strlen(words[i]);
    if ((size_t)(s->end - s->at) >= length && memcmp(s->at, words[i], length) == 0) {
      s->at += length;
      return true;
    }
  }
  return false;
}

/* What the value just read, or begun, means for the message. The last of two equal keys counts, as for a parser. */
static void note(struct scanner *s, const char *from) {
  struct text value = {from, (size_t)(s->at - from)};
  bool is_string = *from == '"', is_number = *from == '-' || (*from >= '0' && *from <= '9');
  struct text none = {from, 0}; /* there, and of no use */
  if (s->place == PLACE_ID)
    s->message->id = is_string || is_number ? value : none;
  else if (s->place == PLACE_METHOD)
    s->message->method = is_string ? value : none;
  else if (s->place == PLACE_CANCELLED)
    s->message->cancelled = is_string || is_number ? value : none;
}

/* A key with its colon; only where it can matter is it compared. */
static bool take_key(struct scanner *s) {
  skip_space(s);
  struct text key = {.at = s->at};
  if (!skip_string(s))
    return false;
  key.length = (size_t)(s->at - key.at);
  s->place = PLACE_ELSEWHERE;
  if (s->depth == 1)
    s->place = text_is(key, "\"id\"")       ? PLACE_ID
               : text_is(key, "\"method\"") ? PLACE_METHOD
               : text_is(key, "\"params\"") ? PLACE_PARAMS
                                            : PLACE_ELSEWHERE;
  else if (s->depth == 2 && s->is_in_params && text_is(key, "\"requestId\""))
    s->place = PLACE_CANCELLED;
  skip_space(s);
  if (s->at >= s->end || *s->at != ':')
    return false;
  s->at++;
  return true;
}

static bool take_scalar(struct scanner *s) {
  const char *from = s->at;
  bool is_good = *from == '"' ? skip_string(s) : *from == '-' || (*from >= '0' && *from <= '9') ? skip_number(s) : skip_word(s);
  if (is_good)
    note(s, from);
  return is_good;
}

/* After `{` or `[`: true when a value is next. An empty one is closed by the caller. */
static bool begin(struct scanner *s, bool *is_empty) {
  char opener = *s->at;
  if (s->depth == DEPTH_MAX)
    return false;
  note(s, s->at);
  if (s->depth == 1)
    s->is_in_params = s->place == PLACE_PARAMS;
  s->open[s->depth++] = opener;
  s->at++;
  skip_space(s);
  *is_empty = s->at < s->end && *s->at == (opener == '{' ? '}' : ']');
  if (*is_empty)
    return true;
  s->place = PLACE_ELSEWHERE;
  return opener == '[' || take_key(s);
}

/* After a value: closes what ends here, and goes to the next one. False where the text is wrong. */
static bool go_on(struct scanner *s, bool *is_over) {
  for (;;) {
    skip_space(s);
    *is_over = s->depth == 0;
    if (*is_over)
      return s->at == s->end;
    if (s->at >= s->end)
      return false;
    char opener = s->open[s->depth - 1], c = *s->at++;
    if (c == ',') {
      s->place = PLACE_ELSEWHERE;
      return opener == '[' || take_key(s);
    }
    if (c != (opener == '{' ? '}' : ']'))
      return false;
    s->depth--;
  }
}

static bool is_json(struct scanner *s) {
  for (bool is_over = false; !is_over;) {
    bool is_empty = true;
    skip_space(s);
    if (s->at >= s->end)
      return false;
    bool is_container = *s->at == '{' || *s->at == '[';
    if (!(is_container ? begin(s, &is_empty) : take_scalar(s)))
      return false;
    if (is_container && !is_empty)
      continue;
    if (!go_on(s, &is_over))
      return false;
  }
  return true;
}

void scan_message(const char *text, size_t length, struct message *message) {
  struct scanner s;
  s.at = text;
  s.end = text + length;
  s.depth = 0;
  s.place = PLACE_ELSEWHERE;
  s.is_in_params = false;
  s.message = message;
  *message = (struct message){.kind = MESSAGE_BAD};
  if (!is_json(&s))
    return;
  while (*text == ' ' || *text == '\t' || *text == '\r' || *text == '\n')
    text++;
  bool has_id = message->id.at != NULL, has_method = message->method.at != NULL;
  bool is_id_good = message->id.length > 0 && message->id.length <= ID_BYTES_MAX;
  if (*text != '{')
    message->kind = *text == '[' ? MESSAGE_BATCH : MESSAGE_OTHER;
  else if ((has_id && !is_id_good) || (has_method && message->method.length == 0))
    message->kind = MESSAGE_OTHER;
  else if (has_method)
    message->kind = has_id ? MESSAGE_REQUEST : MESSAGE_NOTIFICATION;
  else
    message->kind = has_id ? MESSAGE_ANSWER : MESSAGE_OTHER;
}

package fence

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits in bytes.
const (
	MaxResourceLen = 512
	MaxHolderLen   = 256
)

// Token is a fencing token: a number that strictly increases with every grant of one resource within one epoch.
// The term is Kleppmann's ("How to do distributed locking", 2016); the idea is Chubby's sequencer (Burrows,
// OSDI 2006).
type Token int64

// MaxToken is the highest token. It leaves room for arithmetic, and bounds the harm of an absurd number.
const MaxToken Token = 1<<62 - 1

// MaxEpoch is the highest epoch. Operators raise the epoch after a restore of the lock service.
const MaxEpoch int64 = 1<<31 - 1

func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

// Grant says that a lock service gave a resource to a holder. It is a plain value, which can be compared with ==
// and sent to other processes ([Grant.MarshalText], [Grant.MarshalJSON]). It is no secret and doesn't prove who
// sent it: authenticate the sender.
type Grant struct {
	// Resource names what is locked: 1 to MaxResourceLen bytes of valid UTF-8 without control characters,
	// compared byte by byte.
	Resource string
	// Epoch orders grants across restores of the lock service: 1 to MaxEpoch.
	Epoch int64
	// Token is the fencing token: 1 to MaxToken.
	Token Token
	// Holder is a label and a nonce. The rules are those of Resource, with MaxHolderLen.
	Holder string
}

// Compare orders grants of one resource by epoch and token: negative if g was granted before other, zero if they
// are equal.
func (g Grant) Compare(other Grant) int {
	return cmp.Or(cmp.Compare(g.Epoch, other.Epoch), cmp.Compare(g.Token, other.Token))
}

// Validate returns an [*InvalidGrantError] for the first part of g that is out of bounds, or nil.
func (g Grant) Validate() error {
	if err := ValidateResource(g.Resource); err != nil {
		return err
	}
	if g.Epoch < 1 || g.Epoch > MaxEpoch {
		return &InvalidGrantError{Part: "epoch", Reason: fmt.Sprintf("%d is not between 1 and %d", g.Epoch, MaxEpoch)}
	}
	if g.Token < 1 || g.Token > MaxToken {
		return &InvalidGrantError{Part: "token", Reason: fmt.Sprintf("%d is not between 1 and %d", g.Token, MaxToken)}
	}
	return validateName("holder", g.Holder, MaxHolderLen)
}

// ValidateResource returns an [*InvalidGrantError] if name can't name a resource, or nil.
func ValidateResource(name string) error {
	return validateName("resource", name, MaxResourceLen)
}

func validateName(part, name string, limit int) error {
	reason := ""
	switch {
	case name == "":
		reason = "is empty"
	case len(name) > limit:
		reason = fmt.Sprintf("has %d bytes, at most %d are allowed", len(name), limit)
	case !utf8.ValidString(name):
		reason = "is not valid UTF-8"
	case strings.ContainsFunc(name, unicode.IsControl):
		reason = "contains a control character"
	default:
		return nil
	}
	return &InvalidGrantError{Part: part, Reason: reason}
}

const textPrefix = "fence1"

// String returns the text form of g, which need not be valid: version, epoch, token, holder and resource, separated
// by colons, the last two escaped as in a URL path. It is ASCII without spaces and fits an HTTP header.
func (g Grant) String() string {
	return fmt.Sprintf("%s:%d:%d:%s:%s", textPrefix, g.Epoch, g.Token, escape(g.Holder), escape(g.Resource))
}

func escape(s string) string {
	return strings.ReplaceAll(url.PathEscape(s), ":", "%3A")
}

// ParseGrant parses the text form of a grant, see [Grant.String]. A valid grant has exactly one; everything
// else is an [*InvalidGrantError].
func ParseGrant(text string) (Grant, error) {
	if len(text) > maxTextLen {
		return Grant{}, &InvalidGrantError{Part: "text form", Reason: fmt.Sprintf("has %d bytes, at most %d are possible", len(text), maxTextLen)}
	}
	parts := strings.Split(text, ":")
	if len(parts) != 5 || parts[0] != textPrefix {
		return Grant{}, &InvalidGrantError{Part: "text form", Reason: fmt.Sprintf("want %s:EPOCH:TOKEN:HOLDER:RESOURCE", textPrefix)}
	}
	epoch, errEpoch := strconv.ParseInt(parts[1], 10, 64)
	token, errToken := strconv.ParseInt(parts[2], 10, 64)
	holder, errHolder := url.PathUnescape(parts[3])
	resource, errResource := url.PathUnescape(parts[4])
	if err := errors.Join(errEpoch, errToken, errHolder, errResource); err != nil {
		return Grant{}, &InvalidGrantError{Part: "text form", Reason: err.Error()}
	}
	g := Grant{Resource: resource, Epoch: epoch, Token: Token(token), Holder: holder}
	if err := g.Validate(); err != nil {
		return Grant{}, err
	}
	if g.String() != text {
		return Grant{}, &InvalidGrantError{Part: "text form", Reason: "is not in canonical form; want " + g.String()}
	}
	return g, nil
}

const maxTextLen = len(textPrefix) + 4 + 2*20 + 3*(MaxResourceLen+MaxHolderLen)

// MarshalText returns the text form of g, or an error if g is invalid.
func (g Grant) MarshalText() ([]byte, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	return []byte(g.String()), nil
}

// UnmarshalText is [ParseGrant]. If it fails, g is unchanged.
func (g *Grant) UnmarshalText(text []byte) error {
	parsed, err := ParseGrant(string(text))
	if err != nil {
		return err
	}
	*g = parsed
	return nil
}

// MarshalJSON returns g as an object with the members resource, epoch, token and holder, or an error if g
// is invalid.
func (g Grant) MarshalJSON() ([]byte, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Resource string `json:"resource"`
		Epoch    int64  `json:"epoch"`
		Token    Token  `json:"token"`
		Holder   string `json:"holder"`
	}(g))
}

// UnmarshalJSON parses the JSON form: exactly these four members, once each and in lower case. If it fails,
// g is unchanged.
func (g *Grant) UnmarshalJSON(data []byte) error {
	parsed, err := parseJSON(data)
	if err != nil {
		return &InvalidGrantError{Part: "JSON form", Reason: err.Error()}
	}
	if err := parsed.Validate(); err != nil {
		return err
	}
	*g = parsed
	return nil
}

// parseJSON reads member by member, because json.Unmarshal accepts unknown members, other cases, duplicates and
// bytes that are not UTF-8. A missing member stays zero, which is invalid.
func parseJSON(data []byte) (g Grant, err error) {
	if !utf8.Valid(data) || !json.Valid(data) {
		return g, errors.New("is not valid JSON in UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if open, _ := dec.Token(); open != json.Delim('{') {
		return g, errors.New("want an object")
	}
	members := map[any]any{"resource": &g.Resource, "epoch": &g.Epoch, "token": &g.Token, "holder": &g.Holder}
	for dec.More() {
		name, _ := dec.Token()
		member := members[name]
		if member == nil {
			return g, fmt.Errorf("has the member %q twice, or an unknown one", name)
		}
		delete(members, name)
		if err := dec.Decode(member); err != nil {
			return g, err
		}
	}
	return g, nil
}

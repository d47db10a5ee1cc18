package audit_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
)

// lines are the lines of an export, each with its newline.
type lines []string

func (l lines) bytes() []byte { return []byte(strings.Join(l, "")) }

// at returns the number of the first line that has all of these.
func (l lines) at(t *testing.T, all ...string) int {
	t.Helper()
	i := slices.IndexFunc(l, func(line string) bool {
		return !slices.ContainsFunc(all, func(part string) bool { return !strings.Contains(line, part) })
	})
	require.GreaterOrEqual(t, i, 0, "%q", all)
	return i
}

// sealed makes the last line fit what is before it, as a skilled forger would.
func (l lines) sealed() lines {
	body := l[:len(l)-1]
	sum := sha256.Sum256(body.bytes())
	return append(slices.Clone(body), fmt.Sprintf("{\"end\":{\"lines\":%d,\"sha256\":\"%x\"}}\n", len(body), sum))
}

// exportTamperings are the kinds of tampering with an export of the evidence. Each makes the last
// line fit, unless it is about that.
var exportTamperings = []struct {
	what   string
	forge  func(t *testing.T, l lines) lines
	want   string
	noSeal bool
}{
	{what: "the escapes in the text of the operations changed", forge: replacing(`sell`, `s\u0065ll`, "entry", `"seq":2`), want: "Line 13 of an export isn't as an export writes it: it was changed, or damaged."},
	{what: "a field of an entry doubled", forge: replacing(`"kind":"w"`, `"kind":"w","kind":"w"`, "entry", `"kind":"w"`), want: "Line 13 of an export isn't as an export writes it: it was changed, or damaged."},
	{what: "a field added to an entry", forge: replacing(`"kind":"w"`, `"kind":"w","note":"x"`, "entry", `"kind":"w"`), want: "Line 13 of an export isn't as an export writes it: it was changed, or damaged."},
	{what: "spaces added to a line", forge: replacing(`"kind":"w"`, `"kind": "w"`, "entry", `"kind":"w"`), want: "Line 13 of an export isn't as an export writes it: it was changed, or damaged."},
	{what: "a line that is no JSON added", forge: inserting("hello\n"), want: "Line 14 of an export isn't as an export writes it: it was changed, or damaged."},
	{what: "an empty object added", forge: inserting("{}\n"), want: "Line 14 of an export isn't as an export writes it: it says nothing, or what was said before."},
	{what: "a resource removed, with its fence", forge: removing(`{"resource"`, "sku/1"), want: "sku/1, entry 8: There is no fence for these entries: the resource would accept an old token."},
	{what: "a resource doubled", forge: doubling(`{"resource"`, "sku/6"), want: "Line 8 of an export isn't as an export writes it: it says nothing, or what was said before."},
	{what: "the first line removed", forge: func(_ *testing.T, l lines) lines { return l[1:] }, want: "Line 1 of an export belongs to no export: the first line is missing."},
	{what: "the last line removed", forge: func(_ *testing.T, l lines) lines { return l[:len(l)-1] }, want: "Line 33 of an export is the last, and isn't the end: the export was cut off.", noSeal: true},
	{what: "the last lines removed, up to the middle of one", forge: func(t *testing.T, l lines) lines {
		i := l.at(t, "entry", `"seq":6`)
		return append(slices.Clone(l[:i]), l[i][:20])
	}, want: "Line 17 of an export is the last, and isn't the end: the export was cut off.", noSeal: true},
	{what: "a rejection removed, and the last line left as it was", forge: removing(`{"rejection"`, "sku/1"), want: "Line 33 of an export is the last, and isn't the end: the export was cut off.", noSeal: true},
	{what: "lines added after the end", forge: func(t *testing.T, l lines) lines {
		return append(slices.Clone(l), l[l.at(t, "entry", `"seq":2`)])
	}, want: "Line 35 of an export belongs to no export: the first line is missing.", noSeal: true},
}

// replacing changes a line that has all of some parts.
func replacing(old, by string, all ...string) func(*testing.T, lines) lines {
	return func(t *testing.T, l lines) lines {
		i := l.at(t, append(all, old)...)
		l[i] = strings.Replace(l[i], old, by, 1)
		return l
	}
}

func removing(all ...string) func(*testing.T, lines) lines {
	return func(t *testing.T, l lines) lines { return slices.Delete(l, l.at(t, all...), l.at(t, all...)+1) }
}

func doubling(all ...string) func(*testing.T, lines) lines {
	return func(t *testing.T, l lines) lines {
		i := l.at(t, all...)
		return slices.Insert(l, i, l[i])
	}
}

func inserting(line string) func(*testing.T, lines) lines {
	return func(t *testing.T, l lines) lines { return slices.Insert(l, l.at(t, "entry", `"seq":3`), line) }
}

// Each kind of tampering with an export is found, and named.
func TestVerifyExports_FindTampering(t *testing.T) {
	t.Parallel()
	pool := openPool(t, evidence.Database(t))
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	whole := lines(strings.SplitAfter(string(export(t, d, "")), "\n"))
	whole = whole[:len(whole)-1] // nothing follows the last newline
	requireHonest(t, verifyExports(t, audit.VerifyOptions{}, whole.sealed().bytes()))
	for _, x := range exportTamperings {
		t.Run(x.what, func(t *testing.T) {
			t.Parallel()
			forged := x.forge(t, slices.Clone(whole))
			if !x.noSeal {
				forged = forged.sealed()
			}
			r := verifyExports(t, audit.VerifyOptions{}, forged.bytes())
			require.Contains(t, texts(r), x.want)
		})
	}
}

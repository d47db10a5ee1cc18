package fence_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
)

func valid() fence.Grant {
	return fence.Grant{Resource: "sku/42", Epoch: 1, Token: 118, Holder: "worker-b-9f"}
}

func TestGrant_TextAndJSONParseBack(t *testing.T) {
	for _, g := range []fence.Grant{
		valid(),
		{Resource: "a", Epoch: fence.MaxEpoch, Token: fence.MaxToken, Holder: "h"},
		{Resource: "größe:1 % / ? # ✓", Epoch: 2, Token: 1, Holder: "a:b c"},
		{Resource: strings.Repeat("x", fence.MaxResourceLen), Epoch: 1, Token: 1, Holder: strings.Repeat(":", fence.MaxHolderLen)},
	} {
		text, err := g.MarshalText()
		require.NoError(t, err)
		parsed, err := fence.ParseGrant(string(text))
		require.NoError(t, err)
		require.Equal(t, g, parsed)
		for _, b := range text {
			require.True(t, b > ' ' && b < 0x7f, "byte %#x can't stand in a header", b)
		}
	}
	require.Equal(t, "fence1:1:118:worker-b-9f:sku%2F42", valid().String())
	data, err := json.Marshal(valid())
	require.NoError(t, err)
	require.Equal(t, `{"resource":"sku/42","epoch":1,"token":118,"holder":"worker-b-9f"}`, string(data))
	var g fence.Grant
	require.NoError(t, json.Unmarshal(data, &g))
	require.Equal(t, valid(), g)
}

func TestParseGrant_RejectsAllButTheExactForm(t *testing.T) {
	for name, text := range map[string]string{
		"empty":                "",
		"no version":           "1:118:h:r",
		"other version":        "fence2:1:118:h:r",
		"too few parts":        "fence1:1:118:h",
		"too many parts":       "fence1:1:118:h:r:x",
		"zero token":           "fence1:1:0:h:r",
		"negative token":       "fence1:1:-1:h:r",
		"plus sign":            "fence1:1:+1:h:r",
		"leading zero":         "fence1:1:0118:h:r",
		"space":                "fence1:1: 118:h:r",
		"hexadecimal":          "fence1:1:0x1:h:r",
		"token over limit":     fmt.Sprintf("fence1:1:%d:h:r", int64(fence.MaxToken)+1),
		"token over int64":     "fence1:1:9223372036854775808:h:r",
		"zero epoch":           "fence1:0:1:h:r",
		"epoch over limit":     fmt.Sprintf("fence1:%d:1:h:r", fence.MaxEpoch+1),
		"empty holder":         "fence1:1:1::r",
		"empty resource":       "fence1:1:1:h:",
		"unescaped slash":      "fence1:1:1:h:a/b",
		"escaped for nothing":  "fence1:1:1:h:%61",
		"lower-case escape":    "fence1:1:1:h:%2f",
		"broken escape":        "fence1:1:1:h:%2",
		"zero byte":            "fence1:1:1:h:a%00",
		"newline":              "fence1:1:1:h:a%0A",
		"not UTF-8":            "fence1:1:1:h:%FF",
		"resource too long":    "fence1:1:1:h:" + strings.Repeat("x", fence.MaxResourceLen+1),
		"holder too long":      "fence1:1:1:" + strings.Repeat("x", fence.MaxHolderLen+1) + ":r",
		"huge":                 "fence1:1:1:h:" + strings.Repeat("x", 1<<20),
		"another lock's token": "mutex/694d8f2c/118",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := fence.ParseGrant(text)
			require.ErrorAs(t, err, new(*fence.InvalidGrantError))
			kept := valid()
			require.Error(t, kept.UnmarshalText([]byte(text)))
			require.Equal(t, valid(), kept, "a failed parse must leave the grant alone")
		})
	}
}

func TestGrant_UnmarshalJSONRejectsAllButTheExactForm(t *testing.T) {
	for name, text := range map[string]string{
		"null":           `null`,
		"string":         `"fence1:1:118:h:r"`,
		"array":          `[1]`,
		"no resource":    `{"epoch":1,"token":118,"holder":"h"}`,
		"no token":       `{"resource":"r","epoch":1,"holder":"h"}`,
		"null token":     `{"resource":"r","epoch":1,"token":null,"holder":"h"}`,
		"zero token":     `{"resource":"r","epoch":1,"token":0,"holder":"h"}`,
		"negative token": `{"resource":"r","epoch":1,"token":-1,"holder":"h"}`,
		"fraction":       `{"resource":"r","epoch":1,"token":1.5,"holder":"h"}`,
		"token as text":  `{"resource":"r","epoch":1,"token":"118","holder":"h"}`,
		"oversized":      `{"resource":"r","epoch":1,"token":1e30,"holder":"h"}`,
		"unknown member": `{"resource":"r","epoch":1,"token":118,"holder":"h","admin":true}`,
		"other case":     `{"Resource":"r","epoch":1,"token":118,"holder":"h"}`,
		"twice":          `{"resource":"r","epoch":1,"token":118,"token":119,"holder":"h"}`,
		"not UTF-8":      "{\"resource\":\"r\xff\",\"epoch\":1,\"token\":118,\"holder\":\"h\"}",
		"zero byte":      `{"resource":"r\u0000","epoch":1,"token":118,"holder":"h"}`,
	} {
		t.Run(name, func(t *testing.T) {
			kept := valid()
			err := kept.UnmarshalJSON([]byte(text))
			require.ErrorAs(t, err, new(*fence.InvalidGrantError))
			require.Equal(t, valid(), kept)
		})
	}
}

func TestGrant_InvalidOnesAreNotMarshalled(t *testing.T) {
	for _, change := range []func(*fence.Grant){
		func(g *fence.Grant) { g.Resource = "" },
		func(g *fence.Grant) { g.Resource = "a\x00" },
		func(g *fence.Grant) { g.Resource = "a\xff" },
		func(g *fence.Grant) { g.Resource = strings.Repeat("x", fence.MaxResourceLen+1) },
		func(g *fence.Grant) { g.Epoch = 0 },
		func(g *fence.Grant) { g.Epoch = fence.MaxEpoch + 1 },
		func(g *fence.Grant) { g.Token = 0 },
		func(g *fence.Grant) { g.Token = fence.MaxToken + 1 },
		func(g *fence.Grant) { g.Holder = "" },
		func(g *fence.Grant) { g.Holder = "a\n" },
	} {
		g := valid()
		change(&g)
		_, err := g.MarshalText()
		require.ErrorAs(t, err, new(*fence.InvalidGrantError))
		_, err = json.Marshal(g)
		require.ErrorAs(t, err, new(*fence.InvalidGrantError))
	}
}

// Epochs come first: after a restore of the lock service, tokens start low again.
func TestGrant_CompareOrdersByEpochThenToken(t *testing.T) {
	g := func(epoch int64, token fence.Token) fence.Grant { return fence.Grant{Epoch: epoch, Token: token} }
	require.Negative(t, g(1, 5).Compare(g(1, 6)))
	require.Positive(t, g(1, 6).Compare(g(1, 5)))
	require.Zero(t, g(1, 5).Compare(g(1, 5)))
	require.Positive(t, g(2, 1).Compare(g(1, 500)))
}

// One grant has one text, and what is valid comes back from both forms.
func FuzzParseGrant(f *testing.F) {
	f.Add(valid().String(), "sku/42", int64(1), int64(118), "h")
	f.Add("fence1:1:1:%3A:%25", "größe:1 %", int64(2), int64(1), "a:b c")
	f.Add("fence1:01:1:h:r", "\xff", int64(0), int64(-1), "")
	f.Fuzz(func(t *testing.T, text, resource string, epoch, token int64, holder string) {
		parsed, err := fence.ParseGrant(text)
		if err != nil {
			require.ErrorAs(t, err, new(*fence.InvalidGrantError))
		} else {
			require.NoError(t, parsed.Validate())
			require.Equal(t, text, parsed.String())
		}
		g := fence.Grant{Resource: resource, Epoch: epoch, Token: fence.Token(token), Holder: holder}
		formed, err := json.Marshal(g)
		if g.Validate() != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		var back fence.Grant
		require.NoError(t, json.Unmarshal(formed, &back))
		require.Equal(t, g, back)
		back, err = fence.ParseGrant(g.String())
		require.NoError(t, err)
		require.Equal(t, g, back)
	})
}

func FuzzGrantJSON(f *testing.F) {
	f.Add([]byte(`{"resource":"sku/42","epoch":1,"token":118,"holder":"h","x":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g := valid()
		if err := json.Unmarshal(data, &g); err != nil {
			require.Equal(t, valid(), g)
			return
		}
		require.NoError(t, g.Validate())
	})
}

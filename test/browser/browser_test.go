// Package browser presses the buttons of the page of "inventory try" in Chromium. It is a module of its own, so that
// no user of Fencekit gets what drives a browser.
package browser

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

var shots = flag.String("shots", "", "directory for screenshots")

// try runs "inventory try" until end or the test's, and returns where the page is.
func try(t *testing.T, address string) (url string, end func()) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "inventory")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./examples/inventory")
	build.Dir = "../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))

	cmd := exec.Command(binary, "try", "-listen", "127.0.0.1:0", "-page", address)
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	end = sync.OnceFunc(func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		for lines.Scan() { // to its end
		}
		require.NoError(t, cmd.Wait())
	})
	t.Cleanup(end)
	for lines.Scan() {
		if url, is := strings.CutPrefix(lines.Text(), "open "); is {
			return strings.TrimSuffix(url, " in a browser"), end
		}
	}
	t.Fatal("it never said where the page is")
	return "", nil
}

// browser is a tab of Chromium's, and what went wrong in it.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string
}

func open(t *testing.T, url string) *browser {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // only a hang takes as long
	t.Cleanup(cancel)
	options := chromedp.DefaultExecAllocatorOptions[:]
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.faults = append(b.faults, fmt.Sprintf("exception: %+v", e.ExceptionDetails))
		case *runtime.EventConsoleAPICalled:
			b.faults = append(b.faults, fmt.Sprintf("console: %+v", e))
		case *log.EventEntryAdded:
			b.faults = append(b.faults, fmt.Sprintf("log: %+v", e.Entry))
		}
	}))
	_, err := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	require.NoError(t, err)
	b.do(chromedp.Navigate(url))
	return b
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, steps...))
}

// await waits until an expression is true.
func (b *browser) await(expression string) {
	b.t.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(0), chromedp.WithPollingInterval(50*time.Millisecond)))
	require.NoError(b.t, err, expression)
}

func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return value
}

// tabTo moves the focus to a button by the keyboard alone.
func (b *browser) tabTo(label string) {
	b.t.Helper()
	for range 50 {
		b.do(chromedp.KeyEvent(kb.Tab))
		if eval[string](b, `document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent`) == label {
			return
		}
	}
	b.t.Fatalf("Tab never reaches %q", label)
}

func (b *browser) click(label string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.Search(`//button[@aria-label="` + label + `" or normalize-space()="` + label + `"]`)))
}

// pale lists the texts whose contrast with their background is less than 4.5.
const pale = `(() => {
	const rgb = c => c.match(/[\d.]+/g).map(Number);
	const luminance = c => rgb(c).slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
	const back = el => { const c = getComputedStyle(el).backgroundColor; return rgb(c)[3] === 0 ? back(el.parentElement) : c; };
	const off = el => el.closest("[aria-disabled=true]");
	return [...document.querySelectorAll("body *")].filter(el => !off(el) && [...el.childNodes].some(n => n.nodeType === 3 && n.data.trim())).filter(el => {
		const [dark, light] = [luminance(getComputedStyle(el).color), luminance(back(el))].sort((a, b) => a - b);
		return (light + .05) / (dark + .05) < 4.5;
	}).map(el => el.tagName + "." + el.className + ": " + el.textContent);
})()`

// look sees that the page fits, and keeps a picture of it if there is a place for that.
func (b *browser) look(name string, width int64, scheme string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	require.NoError(b.t, err)
	_, err = chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: 860, DeviceScaleFactor: 1, Mobile: width < 500,
	})
	require.NoError(b.t, err)
	require.LessOrEqual(b.t, eval[int64](b, `document.documentElement.scrollWidth`), width, "it has to be scrolled sideways")
	require.Empty(b.t, eval[[]string](b, pale), "the contrast is less than WCAG AA's")
	if *shots == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(*shots, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), picture, 0o644))
}

// everywhere looks at the page on a desk and on a telephone, by day and by night.
func (b *browser) everywhere(name string) {
	b.t.Helper()
	for _, scheme := range []string{"dark", "light"} {
		for _, width := range []int64{390, 1280} {
			b.look(name, width, scheme)
		}
	}
}

const stoppedAndOvertaken = `state?.lanes[0].status === "stopped" && state.lanes[0].lock === "" && state.lanes.some(l => l.token > state.lanes[0].token)`

func TestPage_IsDrivenThroughItsStory(t *testing.T) {
	url, _ := try(t, "127.0.0.1:0")
	b := open(t, url)
	b.await(`document.querySelectorAll(".lane").length === 3 && Number(document.getElementById("sold").textContent) > 2 && state.lanes.every(l => l.token)`)
	b.everywhere("start")
	nameless := eval[int](b, `[...document.querySelectorAll("button, section, article, ol")].filter(el => !(el.getAttribute("aria-label") || el.getAttribute("aria-labelledby") || el.textContent.trim())).length`)
	require.Zero(t, nameless, "something has no name for a screen reader")

	b.click("Start over") // with all of the stock, however long the pictures took

	// With the keyboard alone: Tab and Enter.
	b.tabTo("Pause worker-a")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.await(stoppedAndOvertaken)
	require.Equal(t, "Resume worker-a", eval[string](b, `document.activeElement.getAttribute("aria-label")`), "the button has lost the focus")
	b.everywhere("paused")
	b.click("Burst of orders")
	b.await(`Number(document.getElementById("sold").textContent) >= 60`)
	b.tabTo("Resume worker-a")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.await(`document.querySelector(".lane.a .note.rejected")?.textContent.includes("was superseded by")`)
	b.await(`document.querySelector("#log .rejected") && document.querySelector("#claims .rejected") && document.getElementById("log").ariaLive === "polite"`)
	b.await(`document.querySelector("#hint.good")`)
	require.Equal(t, 0, eval[int](b, `Number(document.getElementById("oversold").textContent)`))
	b.everywhere("rejected")

	b.click("Fence")
	b.await(`document.getElementById("fence").getAttribute("aria-checked") === "false" && Number(document.getElementById("sold").textContent) > 1`)
	b.click("Pause worker-a")
	b.await(stoppedAndOvertaken)
	before := eval[int](b, `Number(document.getElementById("sold").textContent)`)
	b.click("Burst of orders")
	b.await(fmt.Sprintf(`Number(document.getElementById("sold").textContent) >= Math.min(%d, 100)`, before+40))
	b.click("Resume worker-a")
	b.await(`document.querySelector("#over.bad") && document.querySelector("#lots .over") && document.querySelector(".lane.a .note.oversold") && Number(document.getElementById("oversold").textContent) > 0`)
	b.everywhere("oversold")

	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(t, b.faults)
}

// A page that is loaded anew has every entry, once. One whose server is another has that one's only.
func TestPage_ComesBack(t *testing.T) {
	url, end := try(t, "127.0.0.1:0")
	b := open(t, url)
	const each = `new Set([...document.querySelectorAll("#claims li")].map(li => li.textContent)).size === document.querySelectorAll("#claims li").length`
	b.await(`document.querySelectorAll("#claims li").length > 3`)
	b.do(chromedp.Reload())
	b.await(`document.querySelectorAll("#claims li").length > 6`)
	require.True(t, eval[bool](b, each))

	end()
	b.await(`document.querySelector("#hint b").textContent === "The server doesn’t answer"`)
	before := eval[string](b, `run`)
	try(t, strings.TrimPrefix(url, "http://"))
	b.await(fmt.Sprintf(`run !== %q && document.querySelector("#hint b").textContent.startsWith("Press Pause") && document.querySelectorAll("#claims li").length > 3`, before))
	require.Equal(t, 1, eval[int](b, `[...document.querySelectorAll("#log p")].filter(p => p.textContent.startsWith("New stock")).length`))
	require.True(t, eval[bool](b, each))
}

package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/fencekit/fencekit/bench/internal/result"
	"github.com/fencekit/fencekit/bench/internal/scenario"
	"github.com/fencekit/fencekit/bench/internal/stats"
)

// bar is one contender in a chart of rates.
type bar struct {
	name string
	ours bool
	rate stats.Spread
}

func barsOf(run *result.Run, s scenario.Scenario, r result.Regime) (all []bar) {
	for _, c := range s.Contenders {
		if rate := spreadOf(run, s, c.Name, r, result.Rate); rate.Count > 0 {
			all = append(all, bar{c.Name, c.Fencekit, rate})
		}
	}
	return all
}

// The layout of charts, in units of the SVG.
const (
	chartWidth = 620
	nameWidth  = 230
	numbers    = 70
	barHeight  = 22
	lineHeight = 220
)

// bars draws rates from 0 on, with a line from the smallest to the largest of the rounds.
func bars(all []bar) template.HTML {
	most := 0.0
	for _, b := range all {
		most = math.Max(most, b.rate.Max)
	}
	if most == 0 {
		return ""
	}
	x := func(v float64) float64 { return nameWidth + v/most*(chartWidth-nameWidth-numbers) }
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg viewBox="0 0 %d %d" role="img" aria-label="Operations a second">`, chartWidth, len(all)*barHeight+4)
	for i, b := range all {
		y := i*barHeight + 4
		class := "peer"
		if b.ours {
			class = "ours"
		}
		fmt.Fprintf(&svg, `<text x="%d" y="%d" text-anchor="end">%s</text>`, nameWidth-8, y+13, template.HTMLEscapeString(b.name))
		fmt.Fprintf(&svg, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`, class, nameWidth, y, math.Max(x(b.rate.Median)-nameWidth, 1), barHeight-6)
		fmt.Fprintf(&svg, `<path class="spread" d="M%.1f %d H%.1f M%.1f %d v6 M%.1f %d v6"/>`, x(b.rate.Min), y+8, x(b.rate.Max), x(b.rate.Min), y+5, x(b.rate.Max), y+5)
		fmt.Fprintf(&svg, `<text class="value" x="%.1f" y="%d">%s/s</text>`, x(b.rate.Max)+6, y+13, number(b.rate.Median))
	}
	svg.WriteString("</svg>")
	return template.HTML(svg.String())
}

// line is how one contender's rate developed.
type line struct {
	name  string
	rates []float64
	step  float64 // seconds
}

func linesOf(run *result.Run, s scenario.Scenario, r result.Regime) (all []line) {
	for _, c := range s.Contenders {
		for _, cell := range run.Cells {
			if cell.Scenario != s.Name || cell.Contender != c.Name || cell.Regime != r || cell.Err != "" || len(cell.Timeline) == 0 {
				continue
			}
			l := line{name: c.Name, step: cell.Seconds / float64(len(cell.Timeline))}
			for _, n := range cell.Timeline {
				l.rates = append(l.rates, float64(n)/l.step)
			}
			all = append(all, l)
			break // the first round
		}
	}
	return all
}

// lines draws rates over time, on a logarithmic scale: contenders differ by orders.
func lines(all []line) template.HTML {
	most, least, steps := 0.0, math.Inf(1), 0
	for _, l := range all {
		steps = max(steps, len(l.rates))
		for _, v := range l.rates {
			most = math.Max(most, v)
			if v > 0 {
				least = math.Min(least, v)
			}
		}
	}
	if most == 0 || steps < 2 {
		return ""
	}
	low, high := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	high = math.Max(high, low+1)
	const left, right = 72, chartWidth - 200
	y := func(v float64) float64 {
		return 10 + (high-math.Max(math.Log10(v), low))/(high-low)*(lineHeight-30)
	}
	x := func(i int) float64 { return left + float64(i)/float64(steps-1)*(right-left) }
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg viewBox="0 0 %d %d" role="img" aria-label="Operations a second over time">`, chartWidth, lineHeight)
	for p := low; p <= high; p++ {
		v := math.Pow(10, p)
		fmt.Fprintf(&svg, `<path class="grid" d="M%d %.1f H%d"/><text x="%d" y="%.1f" text-anchor="end">%s/s</text>`, left, y(v), right, left-6, y(v)+4, number(v))
	}
	fmt.Fprintf(&svg, `<text x="%d" y="%d" text-anchor="end">%s s</text>`, right, lineHeight-4, number(float64(steps)*all[0].step))
	for i, l := range all {
		var points strings.Builder
		for j, v := range l.rates {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(j), y(math.Max(v, least)))
		}
		fmt.Fprintf(&svg, `<polyline class="line l%d" points="%s"/>`, i%lineColours, strings.TrimSpace(points.String()))
		fmt.Fprintf(&svg, `<rect class="l%d" x="%d" y="%d" width="10" height="10"/><text x="%d" y="%d">%s</text>`, i%lineColours, right+14, 12+i*20, right+30, 21+i*20, template.HTMLEscapeString(l.name))
	}
	svg.WriteString("</svg>")
	return template.HTML(svg.String())
}

// lineColours is how many the page has.
const lineColours = 8

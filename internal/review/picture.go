package review

import (
	"fmt"
	"strings"
)

// picture is the timeline as a drawing: one row for each event, downwards in order, and a lane
// for each grant. It shows the order, not durations, which may differ by a factor of a million.
type picture struct {
	Label         string // for screen readers
	Width, Height int
	Lanes         []lane
	Rows          []pictureRow
}

// lane is one grant, with as much of its token and its holder as there is room for.
type lane struct {
	X            int
	Name, Holder string
	Bars         []bar // where it had the fence
	grant        Grant
}

type bar struct{ Y, Height int }

// pictureRow is one event.
type pictureRow struct {
	X, Y int
	Kind string
	historyLine
}

// Sizes in pixels: the whole fits a phone.
const (
	pictureWidth = 360
	pictureTop   = 44
	rowHeight    = 26
	lanesFrom    = 128
	headWidth    = 8 // of a character
	maxLanes     = 4
)

// picture draws the history, nil if there is none.
func (x *Explanation) picture() *picture {
	if len(x.History) == 0 {
		return nil
	}
	p := &picture{Label: "Timeline: who had " + x.Resource + ", and what happened, in order", Width: pictureWidth}
	p.Lanes = x.lanes()
	lines := x.lines()
	event := 0
	held, since := -1, pictureTop
	for i, line := range lines {
		row := pictureRow{Y: pictureTop + i*rowHeight, Kind: line.Kind, historyLine: line}
		if line.Kind == "" {
			p.Rows = append(p.Rows, row)
			continue
		}
		e := x.History[event]
		event++
		n := p.laneOf(e.Grant)
		row.X = p.Lanes[n].X
		if e.Kind != kindRejection && n != held {
			p.addBar(held, since, row.Y)
			held, since = n, row.Y
			if e.Kind != "claim" {
				since -= rowHeight / 2
			}
		}
		p.Rows = append(p.Rows, row)
	}
	bottom := pictureTop + len(lines)*rowHeight
	p.addBar(held, since, bottom-rowHeight/2)
	p.Height = bottom
	return p
}

// addBar draws that a lane's grant had the fence.
func (p *picture) addBar(lane, from, to int) {
	if lane >= 0 {
		p.Lanes[lane].Bars = append(p.Lanes[lane].Bars, bar{from, to - from})
	}
}

// lanes returns a lane for each grant in order of appearance, the last one for all others if there are many.
func (x *Explanation) lanes() []lane {
	var lanes []lane
	known := map[Grant]bool{}
	for _, e := range x.History {
		if known[e.Grant] {
			continue
		}
		known[e.Grant] = true
		if len(lanes) == maxLanes {
			lanes[maxLanes-1].Name, lanes[maxLanes-1].Holder = "others", ""
			break
		}
		lanes = append(lanes, lane{Name: fmt.Sprintf("token %d", e.Grant.Token), Holder: e.Grant.Holder, grant: e.Grant})
	}
	width := (pictureWidth - lanesFrom) / max(len(lanes), 1)
	for i := range lanes {
		l := &lanes[i]
		l.X = lanesFrom + i*width + width/2
		if len(l.Name) > width/headWidth {
			l.Name = strings.TrimPrefix(l.Name, "token ")
		}
		l.Name, l.Holder = short(l.Name, width/headWidth), short(l.Holder, width/headWidth)
	}
	return lanes
}

// laneOf returns the number of a grant's lane: the last one for those without one of their own.
func (p *picture) laneOf(g Grant) int {
	for i, l := range p.Lanes {
		if l.grant == g {
			return i
		}
	}
	return len(p.Lanes) - 1
}

// short leaves out the middle of a text that is wider than most characters: names of holders differ
// at the end. Characters beyond those of Europe count twice.
func short(text string, most int) string {
	wide := func(r rune) int {
		if r >= 0x1100 {
			return 2
		}
		return 1
	}
	var head, tail []rune
	rest, used := []rune(text), 0
	for _, r := range rest {
		used += wide(r)
	}
	if used <= most {
		return text
	}
	for used = 1; len(rest) > 0; { // the …
		r := rest[0]
		if len(head) > len(tail) {
			r = rest[len(rest)-1]
		}
		if used += wide(r); used > most {
			break
		}
		if len(head) > len(tail) {
			tail, rest = append([]rune{r}, tail...), rest[:len(rest)-1]
		} else {
			head, rest = append(head, r), rest[1:]
		}
	}
	return string(head) + "…" + string(tail)
}

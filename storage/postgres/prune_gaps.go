package postgres

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// gaps are the names of resources that a prune left as they are, since entries are missing.
type gaps []string

func (g *gaps) add(name string) {
	if !slices.Contains(*g, name) {
		*g = append(*g, name)
	}
}

func (g *gaps) addHex(text string) error {
	name, err := hex.DecodeString(text)
	if err == nil {
		g.add(string(name))
	}
	return err
}

// err returns an error that names the first few.
func (g gaps) err() error {
	if len(g) == 0 {
		return nil
	}
	const most = 3
	text := strings.Join(g[:min(len(g), most)], ", ")
	if len(g) > most {
		text += fmt.Sprintf(" and %d more", len(g)-most)
	}
	return fmt.Errorf("%w: %s; the prune deleted none of their entries; \"fencectl audit verify\" shows what is missing", notReady(HistoryGap), text)
}

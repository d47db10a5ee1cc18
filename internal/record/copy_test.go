package record

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// answer is what the server sends for rows of text columns; nil is null.
func answer(rows ...[][]byte) []byte {
	b := append([]byte(nil), copyHead...)
	for _, row := range rows {
		b = binary.BigEndian.AppendUint16(b, uint16(len(row)))
		for _, column := range row {
			if column == nil {
				b = binary.BigEndian.AppendUint32(b, 0xffffffff)
				continue
			}
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(column))), column...)
		}
	}
	return append(b, 0xff, 0xff)
}

// The answer to COPY may come in pieces of any size.
func TestRowReader_TakesPiecesOfAnySize(t *testing.T) {
	t.Parallel()
	rows := [][][]byte{{[]byte("a"), nil, []byte("")}, {}, {[]byte("größe"), []byte("x"), nil}}
	whole := answer(rows...)
	for size := 1; size <= len(whole); size++ {
		var got [][]string
		r := &rowReader{each: func(row [][]byte) error {
			texts := []string{}
			for _, column := range row {
				if column == nil {
					texts = append(texts, "null")
				} else {
					texts = append(texts, string(column))
				}
			}
			got = append(got, texts)
			return nil
		}}
		for rest := whole; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			_, err := r.Write(rest[:min(size, len(rest))])
			require.NoError(t, err)
		}
		require.True(t, r.ended)
		require.Equal(t, [][]string{{"a", "null", ""}, {}, {"größe", "x", "null"}}, got, "pieces of %d", size)
	}
	_, err := (&rowReader{}).Write([]byte("no answer to COPY, and long enough"))
	require.ErrorIs(t, err, errNotCopy)
}

func TestColumns_NoticeAnotherType(t *testing.T) {
	t.Parallel()
	c := Columns{row: [][]byte{{1, 2}}}
	require.Zero(t, c.Int64())
	require.ErrorContains(t, c.Err(), "its type was changed")
	c = Columns{}
	require.Empty(t, c.Text())
	require.ErrorContains(t, c.Err(), "lacks a column")
}

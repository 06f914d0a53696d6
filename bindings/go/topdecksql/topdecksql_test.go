package topdecksql

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/topdeck/topdeck/bindings/go"
)

// oldDriver has the methods that every driver must have, and no other.
type oldDriver struct{}

func (oldDriver) Open(string) (driver.Conn, error) { return oldConn{}, nil }

type oldConn struct{}

func (oldConn) Prepare(query string) (driver.Stmt, error) {
	if query == "invalid" {
		return nil, errors.New("a syntax error")
	}
	return oldStmt{}, nil
}
func (oldConn) Close() error              { return nil }
func (oldConn) Begin() (driver.Tx, error) { return oldTx{}, nil }

type oldTx struct{}

func (oldTx) Commit() error   { return nil }
func (oldTx) Rollback() error { return nil }

type oldStmt struct{}

func (oldStmt) Close() error  { return nil }
func (oldStmt) NumInput() int { return 1 }
func (oldStmt) Exec([]driver.Value) (driver.Result, error) {
	return driver.RowsAffected(1), nil
}
func (oldStmt) Query(values []driver.Value) (driver.Rows, error) {
	return &oldRows{value: values[0]}, nil
}

type oldRows struct{ value driver.Value }

func (*oldRows) Columns() []string { return []string{"value"} }
func (*oldRows) Close() error      { return nil }
func (r *oldRows) Next(to []driver.Value) error {
	if r.value == nil {
		return io.EOF
	}
	to[0], r.value = r.value, nil
	return nil
}

func TestOperationsAreRecorded(t *testing.T) {
	ctx := context.Background()
	db, err := OpenDriver("orders", oldDriver{}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var answer int
	if err := db.QueryRowContext(ctx, "select ?", 42).Scan(&answer); err != nil || answer != 42 {
		t.Fatal(answer, err)
	}
	if _, err := db.ExecContext(ctx, "invalid", 1); err == nil {
		t.Fatal("no error")
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, "insert", 1); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	program := os.Getenv("TOPDECK_BIN")
	path, err := topdeck.Path()
	if program == "" || err != nil {
		t.Skip("TOPDECK_BIN is not set, or there is no file: ", err)
	}
	output, err := exec.Command(program, "cat", "--json", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Metrics []struct {
			Name    string
			Labels  struct{ Operation string }
			Count   int
			Value   any
			Started int
		}
	}
	if err := json.Unmarshal(output, &read); err != nil {
		t.Fatal(err)
	}
	durations := map[string]int{}
	for _, metric := range read.Metrics {
		switch metric.Name {
		case Duration:
			durations[metric.Labels.Operation] = metric.Count
		case Errors:
			expected := 0.0
			if metric.Labels.Operation == "prepare" {
				expected = 1
			}
			if metric.Value != expected {
				t.Errorf("errors of %s: %v", metric.Labels.Operation, metric.Value)
			}
		}
	}
	for operation, count := range map[string]int{"connect": 1, "prepare": 3, "query": 1, "exec": 1,
		"begin": 1, "commit": 1, "rollback": 0, "ping": 0} {
		if durations[operation] != count {
			t.Errorf("%s: %d, expected %d", operation, durations[operation], count)
		}
	}
}

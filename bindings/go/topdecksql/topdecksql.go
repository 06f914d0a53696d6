// Package topdecksql records the calls of database/sql in shared memory.
//
//	db := topdecksql.Open("orders", connector)
//
// A connector is what a driver offers for sql.OpenDB; for a driver known by name only, see
// OpenDriver.
package topdecksql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/topdeck/topdeck/bindings/go"
)

// Names of the metrics.
const (
	// Histogram in ns, with the labels db and operation; times until the driver returns: for a
	// query, until its first rows are available.
	Duration = "db_client_operation_duration"
	// Counter of failed operations, with the same labels.
	Errors = "db_client_operation_errors_total"
	// Operations in flight, with the tag operation.
	InFlight = "db_client_operations_in_flight"
)

// operations are the values of the label.
var operations = [...]string{"connect", "ping", "prepare", "query", "exec", "begin", "commit",
	"rollback"}

const (
	opConnect = iota
	opPing
	opPrepare
	opQuery
	opExec
	opBegin
	opCommit
	opRollback
)

type recorder struct {
	durations [len(operations)]*topdeck.Histogram
	errors    [len(operations)]*topdeck.Counter
	tags      [len(operations)]topdeck.Tag
	inFlight  *topdeck.InFlight
	number    atomic.Uint64
}

func newRecorder(db string) *recorder {
	r := &recorder{inFlight: topdeck.NewInFlight(topdeck.Description{Name: InFlight,
		Labels: []topdeck.Label{{Name: "db", Value: db}},
		Help:   "Database operations that have not returned."}, "operation")}
	for at, operation := range operations {
		labels := []topdeck.Label{{Name: "db", Value: db}, {Name: "operation", Value: operation}}
		r.durations[at] = topdeck.NewHistogram(topdeck.Description{Name: Duration, Unit: "ns",
			Help: "Time of a database operation.", Labels: labels, Role: topdeck.RoleTiming})
		r.errors[at] = topdeck.NewCounter(topdeck.Description{Name: Errors, Labels: labels,
			Help: "Database operations that failed.", Role: topdeck.RoleError,
			Related: r.durations[at]})
		r.tags[at] = topdeck.NewTag(operation)
	}
	return r
}

// measure calls and records; an operation that the driver does not support is not counted.
func measure[T any](r *recorder, operation int, call func() (T, error)) (T, error) {
	inFlight := r.inFlight.Begin(r.number.Add(1), r.tags[operation])
	defer inFlight.End()
	start := time.Now()
	result, err := call()
	if errors.Is(err, driver.ErrSkip) {
		return result, err
	}
	r.durations[operation].RecordDuration(time.Since(start))
	if err != nil {
		r.errors[operation].Add(1)
	}
	return result, err
}

func measureError(r *recorder, operation int, call func() error) error {
	_, err := measure(r, operation, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// Open returns a database whose operations are recorded; db is the value of the label.
func Open(db string, connector driver.Connector) *sql.DB {
	return sql.OpenDB(&recordingConnector{connector, newRecorder(db)})
}

// OpenDriver is Open for a driver without a connector.
func OpenDriver(db string, of driver.Driver, dataSourceName string) (*sql.DB, error) {
	if with, ok := of.(driver.DriverContext); ok {
		connector, err := with.OpenConnector(dataSourceName)
		if err != nil {
			return nil, err
		}
		return Open(db, connector), nil
	}
	return Open(db, &nameConnector{of, dataSourceName}), nil
}

type nameConnector struct {
	driver driver.Driver
	name   string
}

func (c *nameConnector) Connect(context.Context) (driver.Conn, error) {
	return c.driver.Open(c.name)
}

func (c *nameConnector) Driver() driver.Driver { return c.driver }

type recordingConnector struct {
	driver.Connector
	recorder *recorder
}

// Connect measures the connection.
func (c *recordingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := measure(c.recorder, opConnect, func() (driver.Conn, error) {
		return c.Connector.Connect(ctx)
	})
	if err != nil {
		return nil, err
	}
	return &recordingConn{conn, c.recorder}, nil
}

// recordingConn has all optional methods of a connection, and does what database/sql does for
// drivers that lack them.
type recordingConn struct {
	driver.Conn
	recorder *recorder
}

func (c *recordingConn) Ping(ctx context.Context) error {
	with, ok := c.Conn.(driver.Pinger)
	if !ok {
		return nil
	}
	return measureError(c.recorder, opPing, func() error { return with.Ping(ctx) })
}

func (c *recordingConn) ResetSession(ctx context.Context) error {
	if with, ok := c.Conn.(driver.SessionResetter); ok {
		return with.ResetSession(ctx)
	}
	return nil
}

func (c *recordingConn) IsValid() bool {
	with, ok := c.Conn.(driver.Validator)
	return !ok || with.IsValid()
}

func (c *recordingConn) CheckNamedValue(value *driver.NamedValue) error {
	if with, ok := c.Conn.(driver.NamedValueChecker); ok {
		return with.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

func (c *recordingConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := measure(c.recorder, opBegin, func() (driver.Tx, error) {
		if with, ok := c.Conn.(driver.ConnBeginTx); ok {
			return with.BeginTx(ctx, options)
		}
		if options.Isolation != 0 || options.ReadOnly {
			return nil, errors.New("the driver supports neither isolation levels nor read-only " +
				"transactions")
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return c.Conn.Begin() // Drivers without BeginTx have only this.
	})
	if err != nil {
		return nil, err
	}
	return &recordingTx{tx, c.recorder}, nil
}

func (c *recordingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	statement, err := measure(c.recorder, opPrepare, func() (driver.Stmt, error) {
		if with, ok := c.Conn.(driver.ConnPrepareContext); ok {
			return with.PrepareContext(ctx, query)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return c.Conn.Prepare(query)
	})
	if err != nil {
		return nil, err
	}
	return &recordingStmt{statement, c}, nil
}

func (c *recordingConn) QueryContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Rows, error) {
	return measure(c.recorder, opQuery, func() (driver.Rows, error) {
		if with, ok := c.Conn.(driver.QueryerContext); ok {
			return with.QueryContext(ctx, query, args)
		}
		return nil, driver.ErrSkip
	})
}

func (c *recordingConn) ExecContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Result, error) {
	return measure(c.recorder, opExec, func() (driver.Result, error) {
		if with, ok := c.Conn.(driver.ExecerContext); ok {
			return with.ExecContext(ctx, query, args)
		}
		return nil, driver.ErrSkip
	})
}

type recordingTx struct {
	driver.Tx
	recorder *recorder
}

func (t *recordingTx) Commit() error { return measureError(t.recorder, opCommit, t.Tx.Commit) }

func (t *recordingTx) Rollback() error {
	return measureError(t.recorder, opRollback, t.Tx.Rollback)
}

type recordingStmt struct {
	driver.Stmt
	conn *recordingConn
}

func (s *recordingStmt) CheckNamedValue(value *driver.NamedValue) error {
	if with, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return with.CheckNamedValue(value)
	}
	if with, ok := s.Stmt.(driver.ColumnConverter); ok { // Old drivers.
		converted, err := with.ColumnConverter(value.Ordinal - 1).ConvertValue(value.Value)
		if err == nil {
			value.Value = converted
		}
		return err
	}
	return s.conn.CheckNamedValue(value)
}

func (s *recordingStmt) QueryContext(ctx context.Context,
	args []driver.NamedValue) (driver.Rows, error) {
	return measure(s.conn.recorder, opQuery, func() (driver.Rows, error) {
		if with, ok := s.Stmt.(driver.StmtQueryContext); ok {
			return with.QueryContext(ctx, args)
		}
		values, err := unnamed(ctx, args)
		if err != nil {
			return nil, err
		}
		return s.Stmt.Query(values) // Drivers without QueryContext.
	})
}

func (s *recordingStmt) ExecContext(ctx context.Context,
	args []driver.NamedValue) (driver.Result, error) {
	return measure(s.conn.recorder, opExec, func() (driver.Result, error) {
		if with, ok := s.Stmt.(driver.StmtExecContext); ok {
			return with.ExecContext(ctx, args)
		}
		values, err := unnamed(ctx, args)
		if err != nil {
			return nil, err
		}
		return s.Stmt.Exec(values) // Drivers without ExecContext.
	})
}

func unnamed(ctx context.Context, args []driver.NamedValue) ([]driver.Value, error) {
	values := make([]driver.Value, len(args))
	for at, arg := range args {
		if arg.Name != "" {
			return nil, errors.New("the driver does not support named parameters")
		}
		values[at] = arg.Value
	}
	return values, ctx.Err()
}

"""Tables: where they come from, what a column may hold, how rows are named.

Modules:
    addresses    where addresses of databases lead, and what of them is secret
    categories   categories of a column as canonical text
    columns      the kind and the numbers of a column
    conversions  decimal commas, dates and numbers that mean missing
    features     columns as float32 features
    folders      files and folders of a table, here or in storages
    frame        a party's table as a job uses it: ids, columns, label
    holdout      chooses validation rows by id
    id_differences  why ids did not match
    ids          one byte string per row as its id
    kinds        kinds of tables, storages and databases, a record each
    label_values  numbers labels of any names; columns that look like one
    loading      loads a table and checks it before anything is sent
    mapped_rows  a table of any number of rows, whose cells lie in files
    outline      names, types and size of a data set
    predictions  writes predictions beside their ids
    queries      queries and their answers
    reading      reads tables where their sources say; adds places to errors
    row_batches  a table of any number of rows, batch after batch
    row_count    how many rows a table has at most
    selection    which columns a job uses
    sheet        a table as its source holds it
    sources      where a party's table lies
    split        splits a pooled table into parties' tables
    stored       an open table; what is said of one that fails
    survey       describes a table column by column
    svmlight     reads svmlight files
"""

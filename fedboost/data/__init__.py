"""Tables of a party: their sources, the types of their columns, and the ids of their rows.

Modules:
    addresses    addresses of databases and storages, and the secrets in them
    categories   categories of a column as canonical text
    column_blocks  many short columns read together
    columns      the kind and the numbers of a column
    common_ids   ids that several tables have in common
    conversions  signs in numbers, dates and numbers that mean missing
    csv_files    csv as text in UTF-8
    features     columns as float32 features
    folders      files and folders of a table, here or in storages
    frame        a party's table as a job uses it: ids, columns, label
    holdout      chooses validation rows by id
    id_differences  finds out why ids did not match
    ids          one byte string per row as its id
    kinds        kinds of tables, storages and databases, a record each
    label_values  numbers labels of any names; finds columns that look like one
    loading      loads a table and checks it before anything is sent
    mapped_rows  a table of any number of rows, with its cells in files
    outline      names, types and size of a data set
    predictions  writes predictions beside their ids
    queries      queries and their answers
    reading      reads tables from their sources; adds the location to errors
    row_batches  a table of any number of rows, batch after batch
    row_count    an upper bound on the rows of a table
    selection    the columns that a job uses
    sheet        a table as its source holds it
    sources      declarations of a party's tables
    split        splits a pooled table into parties' tables
    stored       an open table, and the errors of tables that cannot be read
    survey       describes a table column by column
    svmlight     reads svmlight files
    table_files  writes tables for people
    written_numbers  signs in numbers that are text
"""
